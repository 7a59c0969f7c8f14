/* dry.h -- by what a test knows that the driver is that of dry.c, behind the name of the card. */
#ifndef DRY_H
#define DRY_H

#define DRY_SUFFIX " (dry run)"

#endif
