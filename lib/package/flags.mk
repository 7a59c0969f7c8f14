# flags.mk -- what all C of this tree is compiled with: the library, its tests and examples, and examples/serving.
CC     ?= gcc
CXX    ?= g++
WARN   := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla -Wno-psabi -Werror=implicit-function-declaration
CFLAGS ?= -O2 -g
COMMON_CFLAGS = -std=c11 -D_GNU_SOURCE -fPIC -fvisibility=hidden -ffunction-sections -fdata-sections -pthread $(WARN) $(CFLAGS) \
	$(if $(SAN),-fsanitize=$(SAN) $(UNCHECKED:%=-fno-sanitize=%) -fno-sanitize-recover=all -fno-omit-frame-pointer) -MMD -MP
# Tests need no optimiser to be right; its time is better spent on running them. Lines are all that a debugger gets.
TEST_CFLAGS ?= -O1 -g1
LDLIBS = -pthread -ldl -lm $(if $(SAN),-fsanitize=$(SAN))
