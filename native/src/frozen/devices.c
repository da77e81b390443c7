/*
 * /dev/urandom, /dev/random and /proc/sys/kernel/random/uuid: who opens one gets a file in memory instead, that begins with what
 * the process's stream gives. Of the devices it is as long as somebody reads: a read that comes to its end makes it longer, by
 * bytes that follow from its last ones, so that whoever inherits the descriptor can do so as well. And temporary names, which
 * the C library draws from the kernel itself.
 */
#define _LARGEFILE64_SOURCE
#include "frozen/preload.h"

#include <asm/unistd.h>
#include <errno.h>
#include <linux/falloc.h>
#include <linux/fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>

#undef errno

#define MEMFD_CLOEXEC 1u
#define NAME "bunshin-random"
#define LINK "/memfd:" NAME " (deleted)"
#define FIRST (256 << 10) /* bytes that an open device holds at first */
#define KEPT (1 << 20)    /* of what was read, at most about this much takes memory */

typedef struct file FILE;
extern FILE *fdopen(int fd, const char *mode) __attribute__((weak));

/* ---- the device ---- */

static bool write_all(long fd, const uint8_t *data, size_t size, int64_t at) {
    for (size_t done = 0; done < size;) {
        long put = SYS(__NR_pwrite64, fd, data + done, size - done, at + (int64_t)done);
        if (put <= 0)
            return false;
        done += (size_t)put;
    }
    return true;
}

static bool append(long fd, const uint8_t key[32], int64_t at) {
    enum { chunk = 4096 };
    uint8_t data[chunk];
    for (int64_t done = 0; done < FIRST; done += chunk) {
        for (int i = 0; i < chunk; i += 64)
            random_block(key, 1, (uint64_t)(done + i) / 64, data + i);
        if (!write_all(fd, data, chunk, at + done))
            return false;
    }
    return true;
}

/* Makes an open device longer. What it adds follows from what is there: two that do so at once write the same. */
static bool extend(int fd) {
    struct stat info;
    uint8_t key[32];
    if (SYS(__NR_fstat, fd, &info, 0, 0) != 0 || info.st_size < FIRST ||
        SYS(__NR_pread64, fd, key, sizeof key, info.st_size - (long)sizeof key) != sizeof key || !append(fd, key, info.st_size))
        return false;
    if (info.st_size > KEPT)
        SYS(__NR_fallocate, fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, info.st_size - KEPT);
    return true;
}

static bool is_device(int fd) {
    struct stat info;
    char path[32] = "/proc/self/fd/", link[sizeof LINK], digits[12];
    if (SYS(__NR_fstat, fd, &info, 0, 0) != 0 || !S_ISREG(info.st_mode) || info.st_nlink != 0)
        return false;
    int count = 0, at = sizeof "/proc/self/fd/" - 1;
    for (unsigned rest = (unsigned)fd; rest || !count; rest /= 10)
        digits[count++] = (char)('0' + rest % 10);
    while (count)
        path[at++] = digits[--count];
    path[at] = '\0';
    long length = SYS(__NR_readlinkat, AT_FDCWD, path, link, sizeof link);
    if (length != sizeof LINK - 1)
        return false;
    link[length] = '\0';
    return base_equal(link, LINK);
}

static long open_device(int flags) {
    uint8_t key[32];
    long fd = SYS(__NR_memfd_create, NAME, flags & O_CLOEXEC ? MEMFD_CLOEXEC : 0, 0, 0);
    if (fd < 0)
        return fd;
    random_draw(key, sizeof key);
    if (append(fd, key, 0))
        return fd;
    SYS(__NR_close, fd, 0, 0, 0);
    return -ENOMEM;
}

static long open_uuid(int flags) {
    static const char hex[] = "0123456789abcdef";
    uint8_t bytes[16];
    uint8_t text[37];
    random_draw(bytes, sizeof bytes);
    bytes[6] = (uint8_t)((bytes[6] & 0x0f) | 0x40);
    bytes[8] = (uint8_t)((bytes[8] & 0x3f) | 0x80);
    size_t at = 0;
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            text[at++] = '-';
        text[at++] = (uint8_t)hex[bytes[i] >> 4];
        text[at++] = (uint8_t)hex[bytes[i] & 15];
    }
    text[at++] = '\n';
    long fd = SYS(__NR_memfd_create, "uuid", flags & O_CLOEXEC ? MEMFD_CLOEXEC : 0, 0, 0);
    if (fd >= 0 && !write_all(fd, text, at, 0)) {
        SYS(__NR_close, fd, 0, 0, 0);
        return -ENOMEM;
    }
    return fd;
}

/* Whether a file is one of ours to open; then *ret is the descriptor, or −errno. */
static bool stands_for(const char *path, int flags, long *ret) {
    if (!path || path[0] != '/' || !random_is_seeded())
        return false;
    if (base_equal(path, FROZEN_COMMAND))
        random_begin_call();
    if ((flags & (O_ACCMODE | O_PATH | O_DIRECTORY)) != O_RDONLY)
        return false;
    if (base_equal(path, "/dev/urandom") || base_equal(path, "/dev/random"))
        *ret = open_device(flags);
    else if (base_equal(path, "/proc/sys/kernel/random/uuid"))
        *ret = open_uuid(flags);
    else
        return false;
    return true;
}

/* ---- open ---- */

int open(const char *path, int flags, ...);
int open64(const char *path, int flags, ...);
int openat(int directory, const char *path, int flags, ...);
int openat64(int directory, const char *path, int flags, ...);
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int directory, const char *path, int flags);
int __openat64_2(int directory, const char *path, int flags);

/* Straight to the kernel: sanitizers call this from inside their own runtime, where their openat must not be entered again. */
static int open_at(int directory, const char *path, int flags, unsigned mode) {
    long fd;
    if (!stands_for(path, flags, &fd))
        fd = SYS(__NR_openat, directory, path, flags, mode);
    return (int)base_answer(fd);
}

#define MODE_OF(flags)                                                                                                                      \
    unsigned mode = 0;                                                                                                                      \
    if (flags & O_CREAT || (flags & __O_TMPFILE) == __O_TMPFILE) {                                                                          \
        va_list arguments;                                                                                                                  \
        va_start(arguments, flags);                                                                                                         \
        mode = va_arg(arguments, unsigned);                                                                                                 \
        va_end(arguments);                                                                                                                  \
    }

EXPORT int open(const char *path, int flags, ...) {
    MODE_OF(flags)
    return open_at(AT_FDCWD, path, flags, mode);
}

EXPORT int open64(const char *path, int flags, ...) {
    MODE_OF(flags)
    return open_at(AT_FDCWD, path, flags | O_LARGEFILE, mode);
}

EXPORT int openat(int directory, const char *path, int flags, ...) {
    MODE_OF(flags)
    return open_at(directory, path, flags, mode);
}

EXPORT int openat64(int directory, const char *path, int flags, ...) {
    MODE_OF(flags)
    return open_at(directory, path, flags | O_LARGEFILE, mode);
}

EXPORT int __open_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
EXPORT int __open64_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags | O_LARGEFILE, 0); }
EXPORT int __openat_2(int directory, const char *path, int flags) { return open_at(directory, path, flags, 0); }
EXPORT int __openat64_2(int directory, const char *path, int flags) { return open_at(directory, path, flags | O_LARGEFILE, 0); }

FILE *fopen(const char *path, const char *mode);
FILE *fopen64(const char *path, const char *mode);

static FILE *open_stream(const char *path, const char *mode, FILE *(*real)(const char *, const char *)) {
    bool closes = false;
    for (const char *at = mode; *at; at++)
        closes |= *at == 'e';
    long fd;
    if (fdopen && *mode == 'r' && mode[1] != '+' && stands_for(path, closes ? O_CLOEXEC : 0, &fd))
        return base_answer(fd) < 0 ? NULL : fdopen((int)fd, mode);
    if (!real)
        base_answer(-ENOSYS);
    return real ? real(path, mode) : NULL;
}

DECLARE_REAL(fopen);
DECLARE_REAL(fopen64);
EXPORT FILE *fopen(const char *path, const char *mode) { return open_stream(path, mode, REAL(fopen)); }
EXPORT FILE *fopen64(const char *path, const char *mode) { return open_stream(path, mode, REAL(fopen64)); }

/* ---- read ---- */

long read(int fd, void *buffer, size_t size);
long __read_chk(int fd, void *buffer, size_t size, size_t room);
long copy_file_range(int in, int64_t *in_at, int out, int64_t *out_at, size_t size, unsigned flags);

DECLARE_REAL(read);
EXPORT long read(int fd, void *buffer, size_t size) {
    __typeof__(&read) real = REAL(read);
    long got = real ? real(fd, buffer, size) : base_answer(SYS(__NR_read, fd, buffer, size, 0));
    if (got < 0 || (size_t)got == size || !random_is_seeded() || !is_device(fd))
        return got;
    while ((size_t)got < size && extend(fd)) {
        long more = SYS(__NR_read, fd, (char *)buffer + got, size - (size_t)got, 0);
        if (more <= 0)
            break;
        got += more;
    }
    return got;
}

EXPORT long __read_chk(int fd, void *buffer, size_t size, size_t room) {
    if (size > room)
        __builtin_trap();
    return read(fd, buffer, size);
}

/* cat and cp would take the end of the file for its end. */
EXPORT long copy_file_range(int in, int64_t *in_at, int out, int64_t *out_at, size_t size, unsigned flags) {
    if (random_is_seeded() && is_device(in))
        return base_answer(-EINVAL);
    return base_answer(base_syscall(__NR_copy_file_range, in, (long)in_at, out, (long)out_at, (long)size, flags));
}

/* ---- temporary names ---- */

static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/* Names until `make` is content with one. Without a seed, the letters are drawn all the same: from the kernel. */
static long make_name(char *template, int suffix, long (*make)(const char *path, int flags), int flags) {
    size_t length = 0;
    while (template[length])
        length++;
    if (suffix < 0 || length < 6 + (size_t)suffix)
        return base_answer(-EINVAL);
    char *place = template + length - 6 - (size_t)suffix;
    for (int i = 0; i < 6; i++)
        if (place[i] != 'X')
            return base_answer(-EINVAL);
    for (int attempt = 0; attempt < 62 * 62 * 62; attempt++) {
        uint64_t drawn = 0;
        if (random_is_seeded())
            random_draw(&drawn, sizeof drawn);
        else if (SYS(__NR_getrandom, &drawn, sizeof drawn, 0, 0) < 0)
            return base_answer(-EAGAIN);
        for (int i = 0; i < 6; i++, drawn /= 62)
            place[i] = letters[drawn % 62];
        long made = make(template, flags);
        if (made != -EEXIST)
            return base_answer(made);
    }
    return base_answer(-EEXIST);
}

static long make_file(const char *path, int flags) {
    return SYS(__NR_openat, AT_FDCWD, path, (flags & ~O_ACCMODE) | O_RDWR | O_CREAT | O_EXCL, 0600);
}

static long make_directory(const char *path, int flags) {
    (void)flags;
    return SYS(__NR_mkdirat, AT_FDCWD, path, 0700, 0);
}

static long make_nothing(const char *path, int flags) {
    struct stat info;
    (void)flags;
    long result = SYS(__NR_newfstatat, AT_FDCWD, path, &info, AT_SYMLINK_NOFOLLOW);
    return result == -ENOENT ? 0 : result == 0 ? -EEXIST : result;
}

#define MAKES_FILE(name, parameters, suffix, flags)                                                                                         \
    int name parameters;                                                                                                                    \
    int name##64 parameters;                                                                                                                \
    EXPORT int name parameters { return (int)make_name(template, suffix, make_file, flags); }                                               \
    EXPORT int name##64 parameters { return (int)make_name(template, suffix, make_file, (flags) | O_LARGEFILE); }

MAKES_FILE(mkstemp, (char *template), 0, 0)
MAKES_FILE(mkostemp, (char *template, int flags), 0, flags)
MAKES_FILE(mkstemps, (char *template, int suffix), suffix, 0)
MAKES_FILE(mkostemps, (char *template, int suffix, int flags), suffix, flags)

char *mkdtemp(char *template);
char *mktemp(char *template);

EXPORT char *mkdtemp(char *template) { return make_name(template, 0, make_directory, 0) < 0 ? NULL : template; }

EXPORT char *mktemp(char *template) {
    if (make_name(template, 0, make_nothing, 0) < 0)
        *template = '\0';
    return template;
}
