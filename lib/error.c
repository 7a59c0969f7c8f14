/* error.c -- the calling thread's last failure, one line. */
#include "base.h"

#include <stdio.h>
#include <string.h>

static _Thread_local char message[1024];
static _Thread_local coda_status last;

coda_status fail_status(void) { return last; }

coda_status vfail(coda_status status, const char *format, va_list args)
{
    char line[sizeof message];
    vsnprintf(line, sizeof line, format, args);
    for (char *c = line; *c; c++)
        if (*c == '\n') *c = ' ';
    memcpy(message, line, sizeof message);
    return last = status;
}

coda_status fail(coda_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfail(status, format, args);
    va_end(args);
    return status;
}

CODA_API const char *coda_error(void) { return message; }

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
