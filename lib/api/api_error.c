/* api_error.c -- the calling thread's message; the library's version, and names of its statuses. */
#include "base.h"

CODA_API const char *coda_error(void) { return fail_message(); }

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
