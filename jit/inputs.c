/*
 * inputs.c -- does a kernel depend on its texts and options alone, as its key says?
 *
 * A key holds the kernel's text, the primitives that it can read and the compiler's options. What the
 * compiler takes from elsewhere would change under an entry that stays. Texts are judged by closed_text.c;
 * here are the flags that the environment gives to NVRTC, of which those that are not known to be harmless
 * are not.
 */
#include "closed_text.h"
#include "compile.h"

#include <stdio.h>
#include <string.h>

/* ---- Flags ---- */

/* Each with what may follow: '=' a value, '+' text that goes on, '.' nothing. */
static const char *const harmless_flags[] = {
    "-D+",
    "-U+",
    "--define-macro=",
    "--undefine-macro=",
    "-std=",
    "--std=",
    "-G.",
    "--device-debug.",
    "-lineinfo.",
    "--generate-line-info.",
    "-dopt=",
    "--dopt=",
    "-use_fast_math.",
    "--use_fast_math.",
    "-ftz=",
    "--ftz=",
    "-prec-sqrt=",
    "--prec-sqrt=",
    "-prec-div=",
    "--prec-div=",
    "-fmad=",
    "--fmad=",
    "-maxrregcount=",
    "--maxrregcount=",
    "-extra-device-vectorization.",
    "--extra-device-vectorization.",
    "-restrict.",
    "--restrict.",
    "-w.",
    "--disable-warnings.",
    "-diag-suppress=",
    "--diag-suppress=",
    "-minimal.",
    "--minimal.",
    "-Ofc=",
    "--Ofast-compile=",
    "-split-compile=",
    "--split-compile=",
    "--no-cache.",
    "--ptxas-options=-v.",
    "--ptxas-options=-O+",
    NULL,
};

/* Letters, digits and signs that quote nothing; no name that tells. */
static bool is_plain(const char *value, size_t n)
{
    char copy[128], *word = copy, *rest;
    if (n >= sizeof copy) return false;
    memcpy(copy, value, n);
    copy[n] = 0;
    if (copy[strspn(copy, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.=+-,")])
        return false;
    while ((word = strtok_r(word, ".=+-,", &rest))) {
        if (text_word_tells(word)) return false;
        word = NULL;
    }
    return true;
}

static bool is_harmless(const char *flag, size_t n)
{
    for (const char *const *f = harmless_flags; *f; f++) {
        size_t length = strlen(*f) - 1;
        char follows = (*f)[length];
        if (follows == '=') length++;
        if (n >= length && !memcmp(flag, *f, length) && (follows != '.' || n == length))
            return is_plain(flag + length, n - length);
    }
    return false;
}

static bool flags_are_closed(const char *variable, char *why, size_t size)
{
    const char *s = environment(variable);
    for (size_t n; s && *(s += strspn(s, " \t\n\r\v\f")); s += n) {
        n = strcspn(s, " \t\n\r\v\f");
        if (is_harmless(s, n)) continue;
        snprintf(why, size, "$%s has \"%.*s\", so kernels may depend on files that are not in their keys",
                 variable, (int)(n < 60 ? n : 60), s);
        return false;
    }
    return true;
}

bool jit_inputs_are_known(char *why, size_t size)
{
    /* NVRTC reads these, too, and nobody has said what they do. */
    static const char *const dark[] = {"NVRTCWIZ", "NV_NVVM_", "EDG_", "LLVM_OVERRIDE_", "CPPCX_", NULL};
    static const char *const none[] = {NULL};
    char err[JIT_ERROR_SIZE];
    const struct sources *s = sources_open(err);
    if (!flags_are_closed("NVRTC_PREPEND_FLAGS", why, size) ||
        !flags_are_closed("NVRTC_APPEND_FLAGS", why, size))
        return false;
    const char *set = environment_begins(dark, none);
    if (set) snprintf(why, size, "$%.*s is set, which NVRTC reads", (int)strcspn(set, "="), set);
    else if (s && s->open[0]) snprintf(why, size, "%s", s->open);
    return !set && (!s || !s->open[0]);
}
