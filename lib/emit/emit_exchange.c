/* emit_exchange.c -- exchanges between ranks have no text: exec has a runner for them. */
#include "emit.h"

coda_status emit_exchange(struct plan *plan, const struct program *p, const struct schedule *s,
                          struct kernel *k)
{
    const struct exchange_spec *of = p->spec;
    (void)plan, (void)s, (void)k;
    return fail(CODA_E_UNSUPPORTED, "%s: it is no kernel", op_info[of->op].text);
}
