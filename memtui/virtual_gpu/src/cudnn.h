/* Descriptors of the stand-in for libcudnn, and what a convolution asks for. */
#ifndef VGPU_CUDNN_H
#define VGPU_CUDNN_H

#include <stddef.h>
#include <stdint.h>

/* The builder passes VGPU_CUDNN_MAJOR, the number in the SONAME. */
#ifndef VGPU_CUDNN_MAJOR
#define VGPU_CUDNN_MAJOR 9
#endif

#define CUDNN_ALLOC_FAILED 2

#if VGPU_CUDNN_MAJOR >= 9
#define CUDNN_BAD_PARAM 2000
#define CUDNN_NOT_SUPPORTED 3000
#define CUDNN_INTERNAL_ERROR 4000
#else
#define CUDNN_BAD_PARAM 3
#define CUDNN_INTERNAL_ERROR 4
#define CUDNN_NOT_SUPPORTED 9
#endif

enum cudnn_type { CUDNN_FLOAT, CUDNN_DOUBLE, CUDNN_HALF, CUDNN_BFLOAT16 = 9 };

/* cudnnMathType_t. */
enum cudnn_math { MATH_DEFAULT, MATH_TENSOR_OP, MATH_TENSOR_OP_CONVERTED, MATH_FMA };

#define CUDNN_MAX_DIMENSIONS 8

/* A tensor or a filter. */
struct cudnn_tensor {
    int type;
    int count; /* of dimensions */
    int dimensions[CUDNN_MAX_DIMENSIONS];
    int strides[CUDNN_MAX_DIMENSIONS]; /* of a tensor only */
};

struct cudnn_convolution {
    int count; /* of spatial dimensions */
    int padding[CUDNN_MAX_DIMENSIONS];
    int stride[CUDNN_MAX_DIMENSIONS];
    int dilation[CUDNN_MAX_DIMENSIONS];
    int compute_type;
    int math;
    int groups;
};

/* ---- cudnn_workspace.c ----------------------------------------------------- */

enum pass { PASS_FORWARD, PASS_BACKWARD_DATA, PASS_BACKWARD_FILTER };

/* x is the input, y the output, w the weights, whichever of them is computed. */
struct convolution_problem {
    enum pass pass;
    const struct cudnn_tensor *x, *y, *w;
    const struct cudnn_convolution *convolution;
};

/* Bytes that an algorithm asks for, -1 where it cannot do the problem. */
int64_t convolution_workspace(const struct convolution_problem *problem, int algorithm);

/* The algorithms that can do it, the likeliest first; returns how many. */
int convolution_algorithms(const struct convolution_problem *problem, int *algorithms, int room);

/* ---- cudnn_descriptors.c --------------------------------------------------- */

size_t cudnn_element_bytes(int type);

/* ---- cudnn_load.c ------------------------------------------------------------ */

enum cudnn_kernels { KERNELS_CONVOLUTION, KERNELS_NORMALISATION };

/* Charges the current device for kernels that are loaded at their first use: 0, or the error where there is no room. */
int cudnn_load(enum cudnn_kernels kernels);

#endif
