# locale.awk -- the law of locales: what is printed and read is alike in each. Reads sources, and from "-" what
# `nm -A` says of the objects below `build`; with at=FOLDER/ all of them are named from FOLDER on.
#
# lib/base/format.c prints and reads floats for lib, examples/plain.h for the parts of the examples. Programs alone (the
# build's own embed, files with a main(), the tool, chat_load) may print a float by printf(): a C program is in the
# locale "C" until it calls setlocale(), which nothing here may.
BEGIN {
    # What reads a locale: numbers, letters, order, messages, dates. Those that end in _l are given one.
    n = split("strtof strtod strtold atof __isoc99_strtod __isoc23_strtod __ctype_b_loc __ctype_tolower_loc" \
              " __ctype_toupper_loc tolower toupper isalpha isdigit isalnum isspace isupper islower isxdigit ispunct" \
              " isprint iscntrl isblank strcasecmp strncasecmp strcasestr strcoll strxfrm strverscmp alphasort strerror strerror_r" \
              " __xpg_strerror_r strftime strptime setlocale localeconv nl_langinfo mbstowcs wcstombs mbrtowc wcrtomb" \
              " mbtowc wctomb mblen btowc wctob fnmatch regcomp strfmon gettext rpmatch", word, " ")
    for (i = 1; i <= n; i++) forbidden[word[i]] = 1
    n = split("vsnprintf vsprintf vfprintf vprintf vasprintf vdprintf vsscanf vfscanf __isoc99_vsscanf", word, " ")
    for (i = 1; i <= n; i++) variadic[word[i]] = 1
    may["examples/", "strerror"] = 1 # for a person, in one's own language
    float = "%[-+ #0-9.*]*[lL]?[fFgGeEaA]"
    printer = "(^|[^A-Za-z0-9_])(v?[fsd]?n?printf|v?asprintf|v?[fs]?scanf)[ ]*\\("
}

function complain(where, what) { print where ": " what; bad++ }

FILENAME == "-" {
    path = $1
    sub(/:.*/, "", path)
    if (index(path, build) == 1) path = at substr(path, length(build) + 1)
    name = $NF
    sub(/@.*/, "", name)
    if ($(NF - 1) != "U") next
    symbols++
    area = path
    sub(/\/.*/, "/", area)
    if (name in forbidden && !((area, name) in may)) complain(path, name "() depends on the locale")
    if (name in variadic && area == "lib/" && path != "lib/base/format.o")
        complain(path, name "() may print floats in the program's locale: format_print() is there for that")
    next
}

FNR == 1 {
    statement = ""
    program = (at FILENAME) ~ /^examples\/(coda|load)\// || FILENAME == "lib/base/format.c"
    while ((getline line < FILENAME) > 0) program = program || line ~ /^int main\(/
    close(FILENAME)
    files++
}

# A statement ends in a line with ; or { or }.
{
    line = $0
    sub(/\/\/.*/, "", line)
    statement = statement " " line
    if (line !~ /[;{}]$/) next
    if (FILENAME ~ /^(jit|cache)\// && statement ~ "\"[^\"]*" float) complain(FILENAME ":" FNR, "prints or reads a float")
    else if (!program && statement ~ printer && statement ~ "\"[^\"]*" float)
        complain(FILENAME ":" FNR, "prints or reads a float in the program's locale")
    statement = ""
}

END {
    printf "%d files, %d wanted symbols; %d against the law of locales\n", files, symbols, bad
    exit bad > 0 || !files || !symbols
}
