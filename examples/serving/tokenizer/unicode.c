/*
 * unicode.c -- UTF-8, properties, normal forms.
 */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "unicode.h"
#include "unicode_tables.h"

void text_add(struct text *t, const char *bytes, size_t n)
{
    if (t->failed || n == 0) return;
    if (t->most && n > t->most - t->size) {
        t->failed = true;
        return;
    }
    if (n > t->room - t->size) {
        size_t room = t->room * 2 > t->size + n ? t->room * 2 : t->size + n + 32;
        char *data = realloc(t->data, room);
        if (!data) {
            t->failed = true;
            return;
        }
        t->data = data;
        t->room = room;
    }
    memcpy(t->data + t->size, bytes, n);
    t->size += n;
}

void text_char(struct text *t, uint32_t c)
{
    utf8proc_uint8_t bytes[4];
    text_add(t, (const char *)bytes, (size_t)utf8proc_encode_char((utf8proc_int32_t)c, bytes));
}

void text_free(struct text *t)
{
    free(t->data);
    *t = (struct text){0};
}

int unicode_get(const char *s, size_t n, uint32_t *c)
{
    if ((unsigned char)*s < 0x80) return *c = (unsigned char)*s, 1;
    utf8proc_int32_t code;
    utf8proc_ssize_t used =
        utf8proc_iterate((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)(n < 4 ? n : 4), &code);
    if (used <= 0) return 0;
    *c = (uint32_t)code;
    return (int)used;
}

bool unicode_valid(const char *s, size_t n)
{
    uint32_t c;
    for (size_t i = 0, used; i < n; i += used)
        if (!(used = (size_t)unicode_get(s + i, n - i, &c))) return false;
    return true;
}

/* How many bytes of s, which begins with no character, begin one that then breaks off: at least 1. */
static size_t broken_start(const char *s, size_t n)
{
    unsigned char b = (unsigned char)s[0];
    size_t want = b >= 0xc2 && b < 0xe0 ? 2 : b >= 0xe0 && b < 0xf0 ? 3 : b >= 0xf0 && b < 0xf5 ? 4 : 1;
    unsigned low = b == 0xe0 ? 0xa0 : b == 0xf0 ? 0x90 : 0x80;
    unsigned high = b == 0xed ? 0x9f : b == 0xf4 ? 0x8f : 0xbf;
    size_t k = 1;
    for (; k < want && k < n; k++, low = 0x80, high = 0xbf)
        if ((unsigned char)s[k] < low || (unsigned char)s[k] > high) break;
    return k;
}

void unicode_add_lossy(struct text *t, const char *s, size_t n)
{
    uint32_t c;
    for (size_t i = 0; i < n;) {
        size_t used = (size_t)unicode_get(s + i, n - i, &c);
        if (used) text_add(t, s + i, used);
        else text_add(t, "\xef\xbf\xbd", 3);
        i += used ? used : broken_start(s + i, n - i);
    }
}

static bool within(const struct range *r, uint32_t c)
{
    for (; r->last; r++)
        if (c >= r->first && c <= r->last) return true;
    return false;
}

static utf8proc_category_t category(uint32_t c) { return utf8proc_category((utf8proc_int32_t)c); }

bool unicode_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
           c == 0x3000;
}

bool unicode_control(uint32_t c) { return within(unicode_controls, c); }

bool unicode_punctuation(uint32_t c)
{
    if (c < 0x80)
        return (c > ' ' && c < '0') || (c > '9' && c < 'A') || (c > 'Z' && c < 'a') || (c > 'z' && c < 0x7f);
    utf8proc_category_t k = category(c);
    if (k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO) return !within(unicode_new_punctuation, c);
    return c == 0x166d || c == 0x111c9; /* these became a symbol and a mark */
}

bool unicode_digit(uint32_t c)
{
    utf8proc_category_t k = category(c);
    return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

/* Symbols that are Alphabetic: letters in circles and squares. */
static bool letter_in_frame(uint32_t c)
{
    return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
           (c >= 0x1f170 && c <= 0x1f189);
}

bool unicode_word(uint32_t c)
{
    utf8proc_category_t k = category(c);
    return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_NL) || k == UTF8PROC_CATEGORY_PC ||
           letter_in_frame(c);
}

bool unicode_accent(uint32_t c)
{
    if (category(c) == UTF8PROC_CATEGORY_MN) return !within(unicode_new_accents, c);
    return c == 0x1734; /* which became Mc */
}

bool unicode_mark(uint32_t c)
{
    utf8proc_category_t k = category(c);
    if (k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME)
        return !within(unicode_new_marks, c);
    return c == 0x1cf2 || c == 0x1cf3; /* which became letters */
}

bool unicode_chinese(uint32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
           (c >= 0x2a700 && c <= 0x2b73f) || (c >= 0x2b740 && c <= 0x2b81f) ||
           (c >= 0x2b920 && c <= 0x2ceaf) || (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

void unicode_lower(struct text *t, uint32_t c)
{
    if (c == 0x130) text_add(t, "i\xcc\x87", 3);
    else text_char(t, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
}

void unicode_upper(struct text *t, uint32_t c)
{
    if (c == 0xdf) text_add(t, "SS", 2);
    else text_char(t, (uint32_t)utf8proc_toupper((utf8proc_int32_t)c));
}

/* Characters apart, in no order yet: their number, 0 if there is no memory. */
static size_t decompose(const char *s, size_t n, bool compatible, utf8proc_int32_t **out)
{
    utf8proc_int32_t *list = NULL;
    size_t count = 0, room = 0;
    uint32_t c;
    for (size_t i = 0, used; i < n && (used = (size_t)unicode_get(s + i, n - i, &c)); i += used) {
        if (room - count < 32) { /* 18 at most come of a character */
            room = room ? room * 2 : n + 32;
            utf8proc_int32_t *grown = realloc(list, room * sizeof *list);
            if (!grown) return free(list), 0;
            list = grown;
        }
        int flags = UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0), last = 0;
        if (within(unicode_new_compositions, c)) {
            list[count++] = (utf8proc_int32_t)c;
            continue;
        }
        utf8proc_ssize_t k =
            utf8proc_decompose_char((utf8proc_int32_t)c, list + count, (utf8proc_ssize_t)(room - count),
                                    (utf8proc_option_t)flags, &last);
        if (k < 0 || (size_t)k > room - count) return free(list), 0;
        count += (size_t)k;
    }
    *out = list;
    return count;
}

static int combining(utf8proc_int32_t c)
{
    int class = utf8proc_get_property(c)->combining_class;
    return class && within(unicode_new_marks, (uint32_t)c) ? 0 : class;
}

/* Sorts marks by their class and keeps the order within one. A run may be as long as the text: counts, no
 * swaps. */
static bool order_run(utf8proc_int32_t *run, size_t n)
{
    size_t at[257] = {0};
    utf8proc_int32_t *sorted = malloc(n * sizeof *sorted);
    if (!sorted) return false;
    for (size_t i = 0; i < n; i++) at[combining(run[i]) + 1]++;
    for (int k = 0; k < 256; k++) at[k + 1] += at[k];
    for (size_t i = 0; i < n; i++) sorted[at[combining(run[i])]++] = run[i];
    memcpy(run, sorted, n * sizeof *run);
    free(sorted);
    return true;
}

static bool order(utf8proc_int32_t *list, size_t count)
{
    for (size_t i = 0, end; i < count; i = end + 1) {
        for (end = i; end < count && combining(list[end]);) end++;
        if (end - i > 1 && !order_run(list + i, end - i)) return false;
    }
    return true;
}

/* Joins characters, in place, but none over a mark that is too new: their number. */
static size_t compose(utf8proc_int32_t *list, size_t count)
{
    utf8proc_option_t flags = (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    size_t done = 0;
    for (size_t from = 0, to; from < count; from = to + 1) {
        for (to = from; to < count && !within(unicode_new_marks, (uint32_t)list[to]);) to++;
        memmove(list + done, list + from, (to - from) * sizeof *list);
        utf8proc_ssize_t kept = utf8proc_normalize_utf32(list + done, (utf8proc_ssize_t)(to - from), flags);
        done += kept > 0 ? (size_t)kept : 0;
        if (to < count) list[done++] = list[to];
    }
    return done;
}

static bool ascii(const char *s, size_t n)
{
    unsigned char any = 0;
    for (size_t i = 0; i < n; i++) any |= (unsigned char)s[i];
    return any < 0x80;
}

void unicode_normal(struct text *t, const char *s, size_t n, enum unicode_form form)
{
    if (ascii(s, n)) {
        text_add(t, s, n);
        return;
    }
    utf8proc_int32_t *list = NULL;
    size_t count = decompose(s, n, form == UNICODE_NFKC || form == UNICODE_NFKD, &list);
    if (n > 0 && (count == 0 || !order(list, count))) t->failed = true;
    if (count && (form == UNICODE_NFC || form == UNICODE_NFKC)) count = compose(list, count);
    for (size_t i = 0; i < count; i++) text_char(t, (uint32_t)list[i]);
    free(list);
}

/* Bytes whose Latin-1 character can be seen stand for themselves, the others for U+0100 and on in their
 * order. */
static bool seen(unsigned b) { return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad); }

uint32_t unicode_of_byte(unsigned char byte)
{
    if (seen(byte)) return byte;
    if (byte <= 0x20) return 0x100u + byte;
    return byte == 0xad ? 0x143u : 0x121u + (byte - 0x7fu);
}

int unicode_byte_of(uint32_t c)
{
    if (c < 0x100) return seen(c) ? (int)c : -1;
    if (c <= 0x120) return (int)(c - 0x100);
    if (c <= 0x142) return (int)(c - 0x121 + 0x7f);
    return c == 0x143 ? 0xad : -1;
}
