/* Stand-in for libcudart: errors. */
#include "runtime.h"

static __thread int last_error;

int runtime_fail(int status)
{
    if (status != CUDA_OK)
        last_error = status;
    return status;
}

VGPU_API int cudaGetLastError(void)
{
    int status = last_error;

    last_error = CUDA_OK;
    return status;
}

VGPU_API int cudaPeekAtLastError(void)
{
    return last_error;
}

static const struct {
    int status;
    const char *name, *text;
} errors[] = {
    { CUDA_OK, "cudaSuccess", "no error" },
    { CUDA_INVALID_VALUE, "cudaErrorInvalidValue", "invalid argument" },
    { CUDA_OUT_OF_MEMORY, "cudaErrorMemoryAllocation", "out of memory" },
    { CUDA_INVALID_CONFIGURATION, "cudaErrorInvalidConfiguration", "invalid configuration argument" },
    { CUDA_NO_DEVICE, "cudaErrorNoDevice", "no CUDA-capable device is detected" },
    { CUDA_INVALID_DEVICE, "cudaErrorInvalidDevice", "invalid device ordinal" },
    { CUDA_PEER_ACCESS_ALREADY_ENABLED, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled" },
    { CUDA_NOT_SUPPORTED, "cudaErrorNotSupported", "operation not supported" },
};

VGPU_API const char *cudaGetErrorName(int status)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        if (errors[i].status == status)
            return errors[i].name;
    }
    return "cudaErrorUnknown";
}

VGPU_API const char *cudaGetErrorString(int status)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        if (errors[i].status == status)
            return errors[i].text;
    }
    return "unknown error";
}
