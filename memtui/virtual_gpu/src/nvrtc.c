/* Stand-in for libnvrtc: programs compile to nothing. */
#include "core.h"
#include "cuda_abi.h"

#include <stdlib.h>

#define NVRTC_OUT_OF_MEMORY 1

VGPU_API int nvrtcVersion(int *major, int *minor)
{
    *major = VGPU_CUDA_VERSION / 1000;
    *minor = VGPU_CUDA_VERSION % 1000 / 10;
    return 0;
}

VGPU_API const char *nvrtcGetErrorString(int status)
{
    (void)status;
    return "virtual GPU NVRTC error";
}

VGPU_API int nvrtcCreateProgram(void **out, const char *source, const char *name, int count, const char *const *headers,
                                const char *const *names)
{
    (void)source;
    (void)name;
    (void)count;
    (void)headers;
    (void)names;
    *out = calloc(1, 64);
    return *out ? 0 : NVRTC_OUT_OF_MEMORY;
}

VGPU_API int nvrtcDestroyProgram(void **program)
{
    free(*program);
    *program = NULL;
    return 0;
}

VGPU_API int nvrtcGetLoweredName(void *program, const char *name, const char **lowered)
{
    (void)program;
    *lowered = name;
    return 0;
}

/* Every result is the empty string: one byte. */
#define EMPTY_RESULT(name)                                                 \
    VGPU_API int nvrtcGet##name##Size(void *program, size_t *size)         \
    {                                                                      \
        (void)program;                                                     \
        *size = 1;                                                         \
        return 0;                                                          \
    }                                                                      \
    VGPU_API int nvrtcGet##name(void *program, char *out)                  \
    {                                                                      \
        (void)program;                                                     \
        *out = 0;                                                          \
        return 0;                                                          \
    }

EMPTY_RESULT(PTX)
EMPTY_RESULT(CUBIN)
EMPTY_RESULT(ProgramLog)
