# pages.sed -- of coda.h and its parts each name that has a page, or a link to one: functions, and types with a name.
s/^CODA_API [^(]*[ *]\(coda_[a-z0-9_]*\)(.*/\1.3/p
s/^typedef [a-z]* \(coda_[a-z_]*\) {.*/\1.3/p
s/^typedef [^{(]*[ *]\(coda_[a-z_]*\);.*/\1.3/p
