#!/bin/sh
# valgrind.sh MODEL_TEST TINY SCRATCH -- readers of files that are damaged, under valgrind; a line says so where that
# is missing.
command -v valgrind >/dev/null || { echo 'SKIP: there is no valgrind'; exit 0; }
exec valgrind -q --error-exitcode=9 --leak-check=full --show-leak-kinds=definite "$@" files cuts modules words
