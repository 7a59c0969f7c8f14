/*
 * nvtx.c -- a tool that is not there: a library for NVTX_INJECTION64_PATH, which writes a line for each range
 * to the file that $FAKE_NVTX names. It asks of its client what the protocol says, and gives up, as tools do,
 * if that is not there. FAKE_NVTX_REFUSES: it does not want to listen.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct attributes {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const char *message;
};
struct callbacks {
    size_t size;
    int (*module)(int module, void (****table)(void), unsigned *count);
};
struct version_info {
    size_t size;
    uint32_t version, reserved;
    void (*set_tool)(uint32_t version);
};

static FILE *out;
static const char *domain = "no domain";
static int depth;

static void *create(const char *name)
{
    domain = name;
    return &domain;
}

static int push(void *in, const struct attributes *a)
{
    int good = in == &domain && a->version == 3 && a->size == sizeof *a && a->message_type == 1;
    fprintf(out, "push %s %s\n", good ? domain : "WRONG", a->message);
    return depth++;
}

static int pop(void *in)
{
    fprintf(out, "pop %s %d\n", in == &domain ? domain : "WRONG", --depth);
    fflush(out);
    return depth;
}

int InitializeInjectionNvtx2(const void *(*table)(uint32_t id));
int InitializeInjectionNvtx2(const void *(*table)(uint32_t id))
{
    enum { CALLBACKS = 1, VERSION_INFO = 3, CORE = 1, CORE2 = 5, PUSH = 4, POP = 5, CREATE = 12, NVTX_3 = 3 };
    const struct version_info *info = table(VERSION_INFO);
    const struct callbacks *c = table(CALLBACKS);
    const char *path = getenv("FAKE_NVTX");
    void (***core)(void), (***core2)(void);
    unsigned cores = 0, core2s = 0;
    if (getenv("FAKE_NVTX_REFUSES") || !path || !(out = fopen(path, "w"))) return 0;
    if (!c || c->size < sizeof *c || !info || info->version != NVTX_3) return 0;
    info->set_tool(NVTX_3);
    if (!c->module(CORE, &core, &cores) || !c->module(CORE2, &core2, &core2s) || cores < 16 || core2s < 16)
        return 0;
    *core2[CREATE] = (void (*)(void))create;
    *core2[PUSH] = (void (*)(void))push;
    *core2[POP] = (void (*)(void))pop;
    return 1;
}
