/* page.c -- GET /: a page to chat with, which the build puts into the program. It loads nothing, and asks
 * this server alone. */
#include "chat_exchange.h"

static const char page[] =
#include "page.inc" /* page.html as a string: the Makefile makes it */
    ;
_Static_assert(sizeof page <= 20000, "the page stays small");

static const char policy[] =
    "default-src 'none'; connect-src 'self'; img-src data:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

enum MHD_Result send_page(struct exchange *x)
{
    struct MHD_Response *r =
        MHD_create_response_from_buffer(sizeof page - 1, (void *)page, MHD_RESPMEM_PERSISTENT);
    if (!r) return MHD_NO;
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, "text/html; charset=utf-8");
    MHD_add_response_header(r, "Content-Security-Policy", policy);
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(r, "Referrer-Policy", "no-referrer");
    return send_response(x, 200, r);
}
