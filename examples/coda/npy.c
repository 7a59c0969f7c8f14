/*
 * npy.c -- reads and writes NumPy's .npy files, versions 1 to 3, little-endian, C order.
 *
 *     "\x93NUMPY" major minor length(2 bytes, from version 2 on 4) header data
 *     header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }" blanks newline
 *
 * A file may be hostile: every length is checked against what is there before it is used.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "npy.h"
#include "regular.h"
#include "tensor.h"

/* The text after 'key': in the header, or NULL. */
static const char *find_key(const char *header, const char *key)
{
    const char *at = strstr(header, key);
    if (!at) return NULL;
    at += strlen(key);
    at += strspn(at, " ");
    if (*at++ != ':') return NULL;
    return at + strspn(at, " ");
}

static const char *parse_descr(struct npy *n, const char *s)
{
    static const char *const known[] = {"'<f2'", "'<f4'", "'<f8'", "'<i4'", "'<i8'"};
    for (int i = 0; s && i < 5; i++)
        if (strncmp(s, known[i], 5) == 0) {
            n->kind = known[i][2];
            n->size = known[i][3] - '0';
            return NULL;
        }
    return "is not of type <f2, <f4, <f8, <i4 or <i8";
}

static const char *parse_shape(struct npy *n, const char *s)
{
    if (!s || *s++ != '(') return "has no shape";
    for (n->elements = 1;;) {
        s += strspn(s, " ");
        if (*s == ')') return NULL;
        char *end;
        if (*s < '0' || *s > '9') return "has a malformed shape";
        if (n->rank == CODA_MAX_RANK) return "has too many dimensions";
        long long d = strtoll(s, &end, 10);
        if (d > INT32_MAX || (d && n->elements > INT64_MAX / 8 / d)) return "has too many elements";
        n->dim[n->rank++] = d;
        n->elements *= d;
        s = end + strspn(end, " ");
        if (*s == ',') s++;
        else if (*s != ')') return "has a malformed shape";
    }
}

static const char *parse_header(struct npy *n, const char *header)
{
    const char *order = find_key(header, "'fortran_order'");
    const char *error = parse_descr(n, find_key(header, "'descr'"));
    if (!error) error = parse_shape(n, find_key(header, "'shape'"));
    if (!error && (!order || (strncmp(order, "False", 5) != 0 && n->rank > 1))) error = "is not in C order";
    return error;
}

static bool read_at(int fd, void *to, size_t size, int64_t at)
{
    for (char *p = to; size;) {
        ssize_t n = pread(fd, p, size, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        p += n, at += n, size -= (size_t)n;
    }
    return true;
}

/* The header, up to its newline, and whether the file has as many elements as it says. */
static const char *parse(struct npy *n, int64_t size)
{
    enum { HEADER_MAX = 1 << 16 };
    static char header[HEADER_MAX + 1];
    unsigned char title[12] = {0};
    size_t have = size < 12 ? (size_t)size : 12;
    if (!read_at(n->fd, title, have, 0)) return "cannot be read";
    if (have < 10 || memcmp(title, "\x93NUMPY", 6) != 0) return "is not an .npy file";
    int64_t wide = title[6] > 1 ? 4 : 2, length = 0;
    if (title[6] < 1 || title[6] > 3 || size < 8 + wide) return "is of an unknown version";
    for (int i = 0; i < wide; i++) length |= (int64_t)title[8 + i] << 8 * i;
    if (length > size - 8 - wide || length == 0) return "ends inside its header";
    if (length > HEADER_MAX) return "has a header of more than 64 kB";
    if (!read_at(n->fd, header, (size_t)length, 8 + wide)) return "cannot be read";
    header[length - 1] = 0; /* the newline */
    n->at = 8 + wide + length;
    const char *error = parse_header(n, header);
    if (error) return error;
    return n->elements * n->size == size - n->at ? NULL : "is shorter or longer than its shape";
}

const char *npy_open(struct npy *n, const char *path)
{
    char why[128];
    int64_t bytes;
    *n = (struct npy){.fd = regular_open(path, REGULAR_ANY, &bytes, why, sizeof why)};
    if (n->fd < 0) return errno == EINVAL || errno == ENXIO ? "is not a plain file" : "cannot be opened";
    const char *error = parse(n, bytes);
    if (error) npy_free(n);
    return error;
}

const char *npy_load(struct npy *n)
{
    size_t size = (size_t)n->elements * (size_t)n->size;
    if (!(n->data = malloc(size + 1))) return "is too large for memory";
    return read_at(n->fd, n->data, size, n->at) ? NULL : "cannot be read";
}

void npy_free(struct npy *n)
{
    if (n->fd >= 0) close(n->fd);
    free(n->data);
    *n = (struct npy){.fd = -1};
}

double npy_get(const struct npy *n, int64_t i)
{
    const unsigned char *at = n->data + i * n->size;
    union {
        uint16_t f2;
        float f4;
        double f8;
        int32_t i4;
        int64_t i8;
    } v;
    memcpy(&v, at, (size_t)n->size);
    if (n->kind == 'i') return n->size == 4 ? v.i4 : (double)v.i8;
    return n->size == 2 ? float_of_f16(v.f2) : n->size == 4 ? v.f4 : v.f8;
}

/* ---- Writing ---- */

static void print_header(FILE *f, const coda_arg_info *a)
{
    char shape[256] = "", line[512];
    for (int d = 0, at = 0; d < a->rank; d++)
        at += snprintf(shape + at, sizeof shape - (size_t)at, "%lld, ", (long long)a->dims[d]);
    int n = snprintf(line, sizeof line, "{'descr': '<%s', 'fortran_order': False, 'shape': (%s), }",
                     a->dtype == CODA_I32   ? "i4"
                     : a->dtype == CODA_I64 ? "i8"
                                            : "f4",
                     shape);
    int length = (10 + n + 1 + 63) / 64 * 64 - 10; /* so that the data begin at a multiple of 64 */
    fwrite("\x93NUMPY\1\0", 1, 8, f);
    fputc(length & 255, f);
    fputc(length >> 8, f);
    fprintf(f, "%-*s\n", length - 1, line);
}

const char *npy_write(const char *path, const coda_arg_info *a, const void *host)
{
    FILE *f = fopen(path, "wbe");
    if (!f) return "cannot be made";
    print_header(f, a);
    int64_t n = element_count(a);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = element_at(a, i);
        float real = (float)element_get(a->dtype, host, at);
        size_t size = dtype_bytes(a->dtype);
        if (dtype_is_whole(a->dtype)) fwrite((const char *)host + (size_t)at * size, size, 1, f);
        else fwrite(&real, sizeof real, 1, f);
    }
    bool bad = ferror(f);
    return fclose(f) != 0 || bad ? "cannot be written" : NULL;
}
