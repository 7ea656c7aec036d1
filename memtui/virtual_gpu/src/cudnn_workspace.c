/* Stand-in for libcudnn: which algorithm a convolution gets, and the workspace
 * that it asks for.  cuDNN's own choice is not published: this is a model.
 *
 * The form of each workspace is that of the algorithm.  Which algorithm comes
 * first was chosen on 80 measured trainings of small networks on an A100
 * (GPUMemNet's generated CNNs, fp32 with TF32, NCHW); the README has what it
 * does to others. */
#include "core.h"
#include "cudnn.h"


/* What the three enumerations of cuDNN have in common. */
enum method {
    METHOD_NONE,
    METHOD_IMPLICIT_GEMM, /* reads its operands where they are */
    METHOD_PRECOMPUTED_GEMM,
    METHOD_GEMM,
    METHOD_FFT,
    METHOD_FFT_TILING,
    METHOD_WINOGRAD,
    METHOD_WINOGRAD_NONFUSED,
};

#define ALGORITHMS 8

/* Indexed by pass, then by cudnnConvolution{Fwd,BwdData,BwdFilter}Algo_t. */
static const enum method methods[][ALGORITHMS] = {
    [PASS_FORWARD] = { METHOD_IMPLICIT_GEMM, METHOD_PRECOMPUTED_GEMM, METHOD_GEMM, METHOD_NONE, METHOD_FFT,
                       METHOD_FFT_TILING, METHOD_WINOGRAD, METHOD_WINOGRAD_NONFUSED },
    [PASS_BACKWARD_DATA] = { METHOD_IMPLICIT_GEMM, METHOD_PRECOMPUTED_GEMM, METHOD_FFT, METHOD_FFT_TILING,
                             METHOD_WINOGRAD, METHOD_WINOGRAD_NONFUSED },
    [PASS_BACKWARD_FILTER] = { METHOD_IMPLICIT_GEMM, METHOD_PRECOMPUTED_GEMM, METHOD_FFT, METHOD_IMPLICIT_GEMM,
                               METHOD_NONE, METHOD_WINOGRAD_NONFUSED, METHOD_FFT_TILING },
};

/* Above so many channels the heuristic leaves Winograd.  Chosen on those 80. */
#define WINOGRAD_CHANNELS 256

#define COPIED_CHANNELS 4

#define WINOGRAD_TILE 4 /* outputs each way; a 3x3 filter reads two more */
#define WINOGRAD_POINTS ((WINOGRAD_TILE + 2) * (WINOGRAD_TILE + 2))
#define FFT_TILE 32
#define FFT_LARGEST 256
#define COMPLEX_BYTES 8

/* ---- the problem ---------------------------------------------------------------- */

static int64_t elements(const struct cudnn_tensor *tensor)
{
    int64_t product = 1;

    for (int i = 0; i < tensor->count; i++)
        product *= tensor->dimensions[i];
    return product;
}

static int64_t bytes_of(const struct cudnn_tensor *tensor)
{
    return elements(tensor) * (int64_t)cudnn_element_bytes(tensor->type);
}

static int every(const int *values, int count, int wanted)
{
    for (int i = 0; i < count; i++) {
        if (values[i] != wanted)
            return 0;
    }
    return 1;
}

static int spatial(const struct convolution_problem *problem)
{
    return problem->x->count - 2;
}

static int is_dense(const struct convolution_problem *problem)
{
    const struct cudnn_convolution *convolution = problem->convolution;

    return convolution->groups == 1 && every(convolution->stride, convolution->count, 1)
           && every(convolution->dilation, convolution->count, 1);
}

/* 3x3, or 3x3x3; one group, stride and dilation 1. */
static int is_plain_three(const struct convolution_problem *problem)
{
    return is_dense(problem) && every(problem->w->dimensions + 2, spatial(problem), 3);
}

static int is_channels_last(const struct cudnn_tensor *tensor)
{
    return tensor->dimensions[1] > 1 && tensor->strides[1] == 1;
}

static int on_tensor_cores(const struct convolution_problem *problem)
{
    if (problem->x->type == CUDNN_FLOAT)
        return problem->convolution->math != MATH_FMA && vgpu_settings()->cc_major >= 8; /* TF32 */
    return problem->x->type == CUDNN_HALF || problem->x->type == CUDNN_BFLOAT16;
}

static int64_t channels(const struct convolution_problem *problem)
{
    return (int64_t)problem->x->dimensions[1] + problem->y->dimensions[1];
}

static int64_t channel_pairs(const struct convolution_problem *problem)
{
    return (int64_t)problem->x->dimensions[1] * problem->y->dimensions[1];
}

/* Tiles of a side that cover the computed tensor, or the output, in all images. */
static int64_t tiles(const struct convolution_problem *problem, int side)
{
    const struct cudnn_tensor *covered = problem->pass == PASS_BACKWARD_DATA ? problem->x : problem->y;
    int64_t count = covered->dimensions[0];

    for (int i = 2; i < covered->count; i++)
        count *= (covered->dimensions[i] + side - 1) / side;
    return count;
}

/* ---- a workspace each -------------------------------------------------------------- */

/* Tensor cores read channels last, four at a time: NCHW operands are copied.
 * The measured trainings show no such copies for a first layer's few channels,
 * nor where the filter is not a plain 3x3. */
static int64_t copies(const struct convolution_problem *problem)
{
    if (!on_tensor_cores(problem) || is_channels_last(problem->x) || !is_plain_three(problem)
        || problem->x->dimensions[1] < COPIED_CHANNELS || problem->y->dimensions[1] < COPIED_CHANNELS)
        return 0;
    return bytes_of(problem->x) + bytes_of(problem->y) + bytes_of(problem->w);
}

/* The matrix of one image's patches. */
static int64_t patches(const struct convolution_problem *problem)
{
    int64_t outputs = elements(problem->y) / problem->y->dimensions[0] / problem->y->dimensions[1];
    int64_t patch = elements(problem->w) / problem->w->dimensions[0];

    return outputs * patch * (int64_t)cudnn_element_bytes(problem->x->type);
}

/* Input, output and filter in the transformed domain, which is fp32. */
static int64_t winograd(const struct convolution_problem *problem)
{
    if (!is_plain_three(problem) || spatial(problem) != 2 || problem->x->type == CUDNN_DOUBLE)
        return -1;
    return 4 * WINOGRAD_POINTS * (tiles(problem, WINOGRAD_TILE) * channels(problem) + channel_pairs(problem));
}

static int64_t transformed(const struct convolution_problem *problem, int64_t planes, int64_t height, int64_t width)
{
    return COMPLEX_BYTES * height * (width / 2 + 1) * (planes * channels(problem) + channel_pairs(problem));
}

static int64_t power_of_two(int64_t at_least)
{
    int64_t power = 1;

    while (power < at_least)
        power *= 2;
    return power;
}

static int64_t fft(const struct convolution_problem *problem)
{
    const int *padding = problem->convolution->padding, *size = problem->x->dimensions + 2;

    if (!is_dense(problem) || spatial(problem) != 2)
        return -1;
    int64_t height = power_of_two(size[0] + 2 * padding[0]), width = power_of_two(size[1] + 2 * padding[1]);
    if (height > FFT_LARGEST || width > FFT_LARGEST)
        return -1;
    return transformed(problem, problem->x->dimensions[0], height, width);
}

static int64_t fft_tiling(const struct convolution_problem *problem)
{
    const int *filter = problem->w->dimensions + 2;

    if (!is_dense(problem) || spatial(problem) != 2 || filter[0] >= FFT_TILE || filter[1] >= FFT_TILE)
        return -1;
    int useful = FFT_TILE - (filter[0] > filter[1] ? filter[0] : filter[1]) + 1;
    return transformed(problem, tiles(problem, useful), FFT_TILE, FFT_TILE);
}

static int64_t workspace_of(const struct convolution_problem *problem, enum method method)
{
    switch (method) {
    case METHOD_IMPLICIT_GEMM: return 0;
    case METHOD_PRECOMPUTED_GEMM: return copies(problem);
    case METHOD_GEMM: return patches(problem);
    case METHOD_FFT: return fft(problem);
    case METHOD_FFT_TILING: return fft_tiling(problem);
    case METHOD_WINOGRAD: return winograd(problem) < 0 ? -1 : 4 * WINOGRAD_POINTS * channel_pairs(problem);
    case METHOD_WINOGRAD_NONFUSED: return winograd(problem);
    default: return -1;
    }
}

int64_t convolution_workspace(const struct convolution_problem *problem, int algorithm)
{
    if (algorithm < 0 || algorithm >= ALGORITHMS || problem->x->count < 3)
        return -1;
    int64_t bytes = workspace_of(problem, methods[problem->pass][algorithm]);
    int64_t fixed = vgpu_settings()->cudnn_workspace;
    return bytes >= 0 && fixed >= 0 ? fixed : bytes;
}

/* ---- the choice ------------------------------------------------------------------------ */

static int prefers_winograd(const struct convolution_problem *problem)
{
    return problem->pass == PASS_BACKWARD_DATA && problem->x->type == CUDNN_FLOAT
           && !is_channels_last(problem->x) && winograd(problem) >= 0
           && problem->x->dimensions[1] <= WINOGRAD_CHANNELS && problem->y->dimensions[1] <= WINOGRAD_CHANNELS;
}

static int number_of(enum pass pass, enum method method)
{
    for (int i = 0; i < ALGORITHMS; i++) {
        if (methods[pass][i] == method)
            return i;
    }
    return -1;
}

int convolution_algorithms(const struct convolution_problem *problem, int *algorithms, int room)
{
    /* Those without a workspace come last: torch takes the next where there is no memory for one. */
    enum method order[] = { METHOD_WINOGRAD_NONFUSED, METHOD_PRECOMPUTED_GEMM, METHOD_IMPLICIT_GEMM };
    int count = 0;

    for (int i = prefers_winograd(problem) ? 0 : 1; i < (int)(sizeof order / sizeof *order) && count < room; i++)
        algorithms[count++] = number_of(problem->pass, order[i]);
    return count;
}
