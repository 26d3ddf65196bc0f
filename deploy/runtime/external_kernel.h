/* C ABI of external kernels: functions of a shared library of yours that compute operators of a
 * model (deploy/docs/custom_operators.md). A module names the library and the function; the runtime
 * loads the library only where the caller allows its path.
 *
 * The runtime calls the function from the thread that runs the session, once for each use of the
 * operator in a run. Sessions may run at the same time, and so may calls of one function. Tensors
 * are compact and row-major (strides NULL, byte_offset 0), on the processor, and the function's for
 * the call only. It must not write to inputs, nor beyond the end of an output.
 *
 * attributes: a line "name = value" for each attribute that the definition states, defaults
 * included, in its order: "k = 3\nweights = [0.5, 1.0]\nmode = \"fast\"\n". Inside of the quotes,
 * \" and \\ are these characters, and \xHH is a byte that is no printable ASCII.
 *
 * Returns 0, or a number that the error of the run shows. */
#ifndef DEPLOY_RUNTIME_EXTERNAL_KERNEL_H_
#define DEPLOY_RUNTIME_EXTERNAL_KERNEL_H_

#include <stdint.h>

#include "dlpack_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t (*TwExternalKernel)(const DLTensor* inputs, int32_t num_inputs, DLTensor* outputs,
                                    int32_t num_outputs, const char* attributes);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* DEPLOY_RUNTIME_EXTERNAL_KERNEL_H_ */
