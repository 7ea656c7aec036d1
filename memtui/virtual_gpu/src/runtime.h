/* Shared by the parts of the stand-in for libcudart. */
#ifndef VGPU_RUNTIME_H
#define VGPU_RUNTIME_H

#include "core.h"
#include "cuda_abi.h"

/* Sets the calling thread's last error; returns what it was given. */
int runtime_fail(int status);

/* The current device's physical index, its context charged; or a status other
 * than CUDA_OK, already set as the last error. */
int runtime_device(int *physical);

/* At each launch: whether it counts what nonzero() will find. */
void runtime_note_selection(const void *function, void *const *arguments);

int cudaEventCreateWithFlags(void **out, unsigned flags);

#endif
