/* Preloaded library: counts the calls of a save, and makes one of them fail or kill the process.

   arm(n, action, lasting): at call n (from 1), a positive `action` is the errno to fail with, at later calls too if
   `lasting`; KILL_BEFORE and KILL_AFTER send SIGKILL; SHORT writes half of a write. fired(): 1 if call n was reached. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { KILL_BEFORE = -1, KILL_AFTER = -2, SHORT = -3 };

static int armed, wanted, action, lasting, calls, done;

void arm(int n, int what, int stays) { wanted = n; action = what; lasting = stays; calls = done = 0; armed = 1; }
int disarm(void) { armed = 0; return calls; }
int fired(void) { return done; }

/* Counts a call; returns 1 if the action applies to it. */
static int due(void)
{
    if (!armed) return 0;
    calls++;
    if (calls != wanted && !(lasting && calls > wanted)) return 0;
    done = 1;
    if (action == KILL_BEFORE) kill(getpid(), SIGKILL);
    return 1;
}

#define REAL(name) ((__typeof__(&name)) dlsym(RTLD_NEXT, #name))
#define CALL(type, name, ...)                                              \
    int is_due = due();                                                    \
    if (is_due && action > 0) { errno = action; return -1; }               \
    type result = REAL(name)(__VA_ARGS__);                                 \
    if (is_due && action == KILL_AFTER) kill(getpid(), SIGKILL);           \
    return result;
#define MODE(flags)                                                        \
    va_list rest; va_start(rest, flags);                                   \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;\
    va_end(rest);

int open(const char *path, int flags, ...) { MODE(flags) CALL(int, open, path, flags, mode) }
int open64(const char *path, int flags, ...) { MODE(flags) CALL(int, open64, path, flags, mode) }
int openat(int at, const char *path, int flags, ...) { MODE(flags) CALL(int, openat, at, path, flags, mode) }
int openat64(int at, const char *path, int flags, ...) { MODE(flags) CALL(int, openat64, at, path, flags, mode) }
int fsync(int fd) { CALL(int, fsync, fd) }
int fdatasync(int fd) { CALL(int, fdatasync, fd) }
int fchmod(int fd, mode_t mode) { CALL(int, fchmod, fd, mode) }
int chmod(const char *path, mode_t mode) { CALL(int, chmod, path, mode) }
int ftruncate(int fd, off_t size) { CALL(int, ftruncate, fd, size) }
int ftruncate64(int fd, off64_t size) { CALL(int, ftruncate64, fd, size) }
int rename(const char *old, const char *new) { CALL(int, rename, old, new) }
int renameat(int a, const char *old, int b, const char *new) { CALL(int, renameat, a, old, b, new) }
int link(const char *old, const char *new) { CALL(int, link, old, new) }
int unlink(const char *path) { CALL(int, unlink, path) }
int unlinkat(int at, const char *path, int flags) { CALL(int, unlinkat, at, path, flags) }
int access(const char *path, int mode) { CALL(int, access, path, mode) }
int stat(const char *path, struct stat *to) { CALL(int, stat, path, to) }
int lstat(const char *path, struct stat *to) { CALL(int, lstat, path, to) }
int fstat(int fd, struct stat *to) { CALL(int, fstat, fd, to) }
int stat64(const char *path, struct stat64 *to) { CALL(int, stat64, path, to) }
int lstat64(const char *path, struct stat64 *to) { CALL(int, lstat64, path, to) }
int fstat64(int fd, struct stat64 *to) { CALL(int, fstat64, fd, to) }
ssize_t readlink(const char *path, char *to, size_t size) { CALL(ssize_t, readlink, path, to, size) }
ssize_t pwrite(int fd, const void *from, size_t size, off_t at) { CALL(ssize_t, pwrite, fd, from, size, at) }

/* A failing close still closes the file. */
int close(int fd)
{
    int is_due = due(), result = REAL(close)(fd);
    if (is_due && action > 0) { errno = action; return -1; }
    if (is_due && action == KILL_AFTER) kill(getpid(), SIGKILL);
    return result;
}

ssize_t write(int fd, const void *from, size_t size)
{
    int is_due = due();
    if (is_due && action > 0) { errno = action; return -1; }
    if (is_due && action != KILL_BEFORE && size > 1) size = size / 2;   /* KILL_AFTER too kills after half of the write */
    ssize_t result = REAL(write)(fd, from, size);
    if (is_due && action == KILL_AFTER) kill(getpid(), SIGKILL);
    return result;
}
