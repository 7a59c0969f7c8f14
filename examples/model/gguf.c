#include "checkpoint.h"
bool gguf_read(struct checkpoint *c, const char *file, const struct mapped_file *map, struct fault *f)
{
    (void)c, (void)map;
    return fault_set(f, "%s: GGUF is not read yet", file);
}
