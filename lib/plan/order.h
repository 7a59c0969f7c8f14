/* order.h -- what is kept in the workspace while programs run one after the other. */
#ifndef ORDER_H
#define ORDER_H

#include "plan.h"

enum { MOST_BY_MEMORY = 4096 }; /* programs: each choice looks at all that are ready */

struct ledger;

/* In the plan's arena. NULL: it has no room. */
struct ledger *ledger_new(struct plan *p);
/* Bytes that are kept behind a program more than ahead of it, if it comes next; and it does. */
double ledger_growth(struct ledger *l, int program);
void ledger_enter(struct ledger *l, int program);
/* The most bytes that a program finds in the workspace, in this order of all; no order has less than the
 * other. */
double ledger_peak(struct ledger *l, const int *order);
double ledger_least(struct ledger *l);

#endif
