/* foreign.h -- what PyTorch, JAX, ONNX, ggml, TensorRT and cuDNN call things, and what they are here. */
#ifndef FOREIGN_H
#define FOREIGN_H

#include "base.h"

/* Both NULL: nothing is known of the word. */
struct foreign {
    const char *ours;   /* what to write: "silu", or "matmul, then add" */
    const char *absent; /* a sentence: why there is nothing of the kind */
};

/* Our name of an operation: "swish", "torch.nn.functional.silu", "ggml_mul_mat", "IShuffleLayer",
 * "CUDNN_POINTWISE_SWISH_FWD". */
struct foreign foreign_operation(const char *word);
/* The name of our dtype, or NULL: "float16", "torch.bfloat16". */
const char *foreign_dtype(const char *word);
/* The name of our attribute of some operation, or NULL: "num_heads" is "heads". */
const char *foreign_attribute(const char *word);

enum { FOREIGN_SIZE = 64 };
/* The word in small letters, without its modules, underscores, and what its library puts around all words:
 * "ggml_soft_max" is "softmax". */
void foreign_plain(const char *word, char out[FOREIGN_SIZE]);
/* Is our word this plain one, but for underscores? */
bool foreign_is(const char *plain, const char *ours);

#endif
