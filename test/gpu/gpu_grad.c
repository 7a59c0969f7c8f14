/* gpu_grad.c -- gradients of all leaves of blocks of models on the GPU: fused they are no farther from fp64
 * than one operation after the other. */
#include "gpu_case.h"
#include "util_device.h"
#include "util_grad_blocks.h"
#include "util_scale.h"

int gpu_grad(void);

int gpu_grad(void)
{
    struct jit_device device;
    char err[JIT_ERROR_SIZE], why[512];
    int failed = 0;
    if (!device_open(&device, err)) return gpu_case(false, "grad", "%s", err);
    bool few = device_emulated(&device) && !scale_is_full();
    for (int i = 0; i < grad_block_count; i++) {
        if (!gpu_mine(i) || (few && !scale_takes_one_in(3, i))) continue;
        bool good = grad_block_good(&grad_blocks[i], 7, true, why, sizeof why);
        failed += gpu_case(good, "grad", "%s: %s", grad_blocks[i].name, why);
    }
    return failed;
}
