#include "model_test.h"
void test_files(const char *tiny, const char *scratch) { (void)tiny, (void)scratch; }
