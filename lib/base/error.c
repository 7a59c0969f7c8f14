/* error.c -- the calling thread's last failure, one line, which a terminal shows and does not obey. */
#include "base.h"

#include <string.h>

static _Thread_local struct failure last;

coda_status fail_status(void) { return last.status; }

const char *fail_message(void) { return last.message; }

void fail_save(struct failure *out) { *out = last; }

void fail_restore(const struct failure *f) { last = *f; }

coda_status vfail(coda_status status, const char *format, va_list args)
{
    char line[sizeof last.message] = ""; /* args may have the last message */
    format_print(line, sizeof line, format, args);
    escape(last.message, sizeof last.message, line);
    return last.status = status;
}

coda_status fail(coda_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfail(status, format, args);
    va_end(args);
    return status;
}
