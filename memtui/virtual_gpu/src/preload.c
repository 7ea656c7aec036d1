/* The one library that is preloaded.  In a process that holds a Python
 * interpreter it loads the stand-ins from its own folder before anything else
 * asks for CUDA: the loader then answers every later request for the same
 * SONAME with them, also where a library's own RPATH names real ones.  In any
 * other process (a shell, a compiler) it does nothing.
 *
 * A full installation of torch also opens NVIDIA's libraries by their paths,
 * which no SONAME answers; dlopen() therefore goes through here. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))
#define MAX_STUBS 48

typedef void *(*open_function)(const char *, int);

static char folder[4096];
static char stubs[MAX_STUBS][64];
static int stub_count;
static open_function real_dlopen;

static open_function next_dlopen(void)
{
    if (!real_dlopen) {
        void *symbol = dlsym(RTLD_NEXT, "dlopen");
        /* ISO C has no cast from an object pointer to a function pointer. */
        memcpy(&real_dlopen, &symbol, sizeof real_dlopen);
    }
    return real_dlopen;
}

/* The stand-in of that SONAME, or of the name without a version, which is a link to it where a driver is installed
 * ("libcuda.so": torch 2.1 asks for that when memory has run out). */
static const char *stub_named(const char *name)
{
    size_t length = strlen(name);

    if (length < 3 || (strcmp(name + length - 3, ".so") && !strstr(name, ".so.")))
        return NULL;
    for (int i = 0; i < stub_count; i++) {
        if (!strncmp(stubs[i], name, length) && (!stubs[i][length] || !strcmp(name + length - 3, ".so")))
            return stubs[i];
    }
    return NULL;
}

/* The call is a tail call (hence -O2 and no stack protector in the build): the
 * loader takes the return address to know whose RPATH to search, and that must
 * stay the original caller's. */
EXPORTED void *dlopen(const char *path, int flags)
{
    if (stub_count && path) {
        const char *slash = strrchr(path, '/');
        const char *stub = stub_named(slash ? slash + 1 : path);
        if (stub)
            path = stub; /* answered by SONAME */
    }
    return next_dlopen()(path, flags);
}

/* ---- the end of a thread ------------------------------------------------------------
 * Before 3.14 Python ends a thread that asks for the interpreter's lock during
 * finalisation by pthread_exit(), whose unwinding torch's autograd thread does
 * not survive: "terminate called without an active exception".  It happens
 * where a program ends right after backward(), and oftener here than on a GPU,
 * because no kernel gives that thread the time to tidy up.  3.14 makes such a
 * thread wait for the process to end; so does this. */

static int python_is_finalizing(void)
{
    int (*asks)(void) = NULL;
    void *symbol = dlsym(RTLD_DEFAULT, "Py_IsFinalizing");

    if (!symbol)
        symbol = dlsym(RTLD_DEFAULT, "_Py_IsFinalizing");
    memcpy(&asks, &symbol, sizeof asks);
    return asks && asks();
}

EXPORTED void pthread_exit(void *value)
{
    void (*real_exit)(void *) __attribute__((noreturn));
    void *symbol = dlsym(RTLD_NEXT, "pthread_exit");

    while (syscall(SYS_gettid) != getpid() && python_is_finalizing())
        pause();
    memcpy(&real_exit, &symbol, sizeof real_exit);
    real_exit(value);
}

/* ---- loading -------------------------------------------------------------------- */

static int find_folder(void)
{
    Dl_info info;

    if (!dladdr((void *)find_folder, &info) || !info.dli_fname)
        return 0;
    const char *slash = strrchr(info.dli_fname, '/');
    if (!slash || (size_t)(slash - info.dli_fname) >= sizeof folder)
        return 0;
    memcpy(folder, info.dli_fname, (size_t)(slash - info.dli_fname));
    return 1;
}

/* Stand-ins are the files whose names end in ".so." and a version. */
static int list_stubs(void)
{
    DIR *directory = opendir(folder);

    if (!directory)
        return 0;
    for (struct dirent *entry; stub_count < MAX_STUBS && (entry = readdir(directory));) {
        if (strncmp(entry->d_name, "lib", 3) || !strstr(entry->d_name, ".so.")
            || strlen(entry->d_name) >= sizeof stubs[0])
            continue;
        strcpy(stubs[stub_count++], entry->d_name);
    }
    closedir(directory);
    return stub_count;
}

__attribute__((constructor)) static void load_stubs(void)
{
    char path[sizeof folder + sizeof stubs];

    if (!dlsym(RTLD_DEFAULT, "Py_BytesMain") || !find_folder() || !list_stubs())
        return;
    for (int i = 0; i < stub_count; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, stubs[i]);
        if (!next_dlopen()(path, RTLD_LAZY | RTLD_GLOBAL))
            fprintf(stderr, "memtui virtual GPU: %s\n", dlerror());
    }
}
