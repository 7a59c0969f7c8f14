/* api_cache.h -- between api_cache.c and api_bundle.c. */
#ifndef API_CACHE_H
#define API_CACHE_H

#include "cache.h"
#include "coda.h"

/* An entry as the user's callback sees it; false if that has seen enough. */
bool api_cache_show(const struct cache_item *item, int (*visit)(void *, const coda_cache_entry *),
                    void *context);

#endif
