/* Stand-in for libcudnn: the convolution queries of cuDNN 7, which torch asks
 * under TORCH_CUDNN_V8_API_DISABLED=1. */
#include "core.h"
#include "cudnn.h"

#include <string.h>

#define MAX_ALGORITHMS 16

/* cudnnConvolution*AlgoPerf_t */
struct performance {
    int algorithm, status;
    float milliseconds;
    size_t workspace;
    int determinism, math;
    int reserved[3];
};

static int fill(const struct convolution_problem *problem, int wanted, int *found, struct performance *out)
{
    int algorithms[MAX_ALGORITHMS];
    int count = convolution_algorithms(problem, algorithms, MAX_ALGORITHMS);

    if (problem->x->count < 3)
        return CUDNN_BAD_PARAM;
    if (vgpu_settings()->cudnn_workspace < 0)
        vgpu_note("estimated", "cuDNN convolution workspace");
    *found = count < wanted ? count : wanted;
    for (int i = 0; i < *found; i++) {
        memset(&out[i], 0, sizeof out[i]);
        out[i].algorithm = algorithms[i];
        out[i].milliseconds = 1.0f + (float)i;
        out[i].workspace = (size_t)convolution_workspace(problem, algorithms[i]);
        out[i].determinism = 1;
        out[i].math = problem->convolution->math;
    }
    return 0;
}

static int size_of(const struct convolution_problem *problem, int algorithm, size_t *bytes)
{
    int64_t workspace = convolution_workspace(problem, algorithm);

    if (workspace < 0)
        return CUDNN_NOT_SUPPORTED;
    *bytes = (size_t)workspace;
    return 0;
}

typedef const struct cudnn_tensor *tensor;
typedef const struct cudnn_convolution *convolution;

/* The order of the descriptors is each call's own. */
#define CONVOLUTION(name, which, first, second, third)                                                               \
    VGPU_API int cudnnGetConvolution##name##Algorithm_v7(void *handle, tensor first, tensor second, convolution c,   \
                                                         tensor third, int wanted, int *found,                       \
                                                         struct performance *out)                                    \
    {                                                                                                                \
        (void)handle;                                                                                                \
        return fill(&(struct convolution_problem){ which, x, y, w, c }, wanted, found, out);                         \
    }                                                                                                                \
    VGPU_API int cudnnFindConvolution##name##AlgorithmEx(                                                            \
        void *handle, tensor first, void *first_data, tensor second, void *second_data, convolution c, tensor third, \
        void *third_data, int wanted, int *found, struct performance *out, void *workspace, size_t size)             \
    {                                                                                                                \
        (void)handle, (void)first_data, (void)second_data, (void)third_data, (void)workspace, (void)size;            \
        return fill(&(struct convolution_problem){ which, x, y, w, c }, wanted, found, out);                         \
    }                                                                                                                \
    VGPU_API int cudnnGetConvolution##name##WorkspaceSize(void *handle, tensor first, tensor second, convolution c,  \
                                                          tensor third, int algorithm, size_t *bytes)                \
    {                                                                                                                \
        (void)handle;                                                                                                \
        return size_of(&(struct convolution_problem){ which, x, y, w, c }, algorithm, bytes);                        \
    }

CONVOLUTION(Forward, PASS_FORWARD, x, w, y)
CONVOLUTION(BackwardData, PASS_BACKWARD_DATA, w, y, x)
CONVOLUTION(BackwardFilter, PASS_BACKWARD_FILTER, x, y, w)

/* ---- the work itself: none, but the kernels are loaded --------------------------------- */

#define EXECUTION(name)                     \
    VGPU_API int cudnnConvolution##name(void) \
    {                                       \
        return cudnn_load(KERNELS_CONVOLUTION); \
    }

EXECUTION(Forward)
EXECUTION(BackwardData)
EXECUTION(BackwardFilter)
EXECUTION(BiasActivationForward)
