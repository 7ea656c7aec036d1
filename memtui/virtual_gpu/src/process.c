/* What belongs to the process as a whole: the lock, fork, and messages. */
#define _GNU_SOURCE
#include "report_file.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

/* Recursive, because unmapping a block walks from the mappings to the ranges. */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static unsigned generation;
static uint64_t kernel_nanoseconds;

VGPU_API void vgpu_lock(void)
{
    pthread_mutex_lock(&lock);
}

VGPU_API void vgpu_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

VGPU_API unsigned vgpu_fork_generation(void)
{
    return generation;
}

VGPU_API void vgpu_kernel_took(uint64_t nanoseconds)
{
    __atomic_add_fetch(&kernel_nanoseconds, nanoseconds, __ATOMIC_RELAXED);
}

VGPU_API uint64_t vgpu_kernels_took(void)
{
    return __atomic_load_n(&kernel_nanoseconds, __ATOMIC_RELAXED);
}

static void before_fork(void)
{
    vgpu_lock();
    report_lock();
}

static void after_fork_in_parent(void)
{
    report_unlock();
    vgpu_unlock();
}

static void after_fork_in_child(void)
{
    /* The lock is owned by the forking thread, whose id the child does not
     * have: unlocking would fail, so it is made anew. */
    lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    report_lock_anew();
    generation++;
}

__attribute__((constructor)) static void watch_fork(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* One write() a line, and no stdio buffer that a fork or an _exit could
 * duplicate or lose. */
static void write_line(const char *format, va_list arguments)
{
    char line[512] = "memtui virtual GPU: ";
    const size_t prefix = sizeof "memtui virtual GPU: " - 1;
    const size_t room = sizeof line - prefix - 1;
    int length = vsnprintf(line + prefix, room, format, arguments);

    if (length < 0)
        return;
    size_t end = prefix + ((size_t)length < room ? (size_t)length : room - 1);
    line[end++] = '\n';
    if (write(STDERR_FILENO, line, end) < 0)
        return; /* nobody is left to tell */
}

VGPU_API void vgpu_say(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    write_line(format, arguments);
    va_end(arguments);
}

VGPU_API void vgpu_trace(const char *format, ...)
{
    va_list arguments;

    if (!vgpu_settings()->trace)
        return;
    va_start(arguments, format);
    write_line(format, arguments);
    va_end(arguments);
}

VGPU_API long vgpu_nothing(const char *name)
{
    vgpu_trace("nothing done for %s", name);
    return 0;
}

VGPU_API long vgpu_refuse(const char *name, int code)
{
    vgpu_say("%s is not simulated", name);
    vgpu_note("refused", name);
    return code;
}
