/* error.c -- the calling thread's last failure, one line. */
#include "base.h"

#include <stdio.h>
#include <string.h>

static _Thread_local struct failure last;

coda_status fail_status(void) { return last.status; }

void fail_save(struct failure *out) { *out = last; }

void fail_restore(const struct failure *f) { last = *f; }

coda_status vfail(coda_status status, const char *format, va_list args)
{
    char line[sizeof last.message];
    vsnprintf(line, sizeof line, format, args);
    for (char *c = line; *c; c++)
        if (*c == '\n') *c = ' ';
    memcpy(last.message, line, sizeof line);
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

CODA_API const char *coda_error(void) { return last.message; }

CODA_API const char *coda_version(void) { return CODA_VERSION_STRING; }

CODA_API const char *coda_status_name(coda_status status)
{
    switch (status) {
    case CODA_OK: return "CODA_OK";
    case CODA_E_INVALID: return "CODA_E_INVALID";
    case CODA_E_UNSUPPORTED: return "CODA_E_UNSUPPORTED";
    case CODA_E_MEMORY: return "CODA_E_MEMORY";
    case CODA_E_COMPILE: return "CODA_E_COMPILE";
    case CODA_E_DEVICE: return "CODA_E_DEVICE";
    case CODA_E_IO: return "CODA_E_IO";
    }
    return "CODA_E_UNKNOWN";
}
