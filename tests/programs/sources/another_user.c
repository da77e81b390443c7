/* For a program that refuses to run as root, where there is no other user: it is told another number, also of its files. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#define OTHER 1 /* daemon, on every system */

uid_t getuid(void) { return OTHER; }
uid_t geteuid(void) { return OTHER; }

static int told(int result, struct stat *info) {
    if (result == 0 && info->st_uid == 0)
        info->st_uid = OTHER;
    return result;
}

#define NEXT(name, ...) ((int (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))

int stat(const char *path, struct stat *info) { return told(NEXT("stat", const char *, struct stat *)(path, info), info); }
int lstat(const char *path, struct stat *info) { return told(NEXT("lstat", const char *, struct stat *)(path, info), info); }
int fstat(int fd, struct stat *info) { return told(NEXT("fstat", int, struct stat *)(fd, info), info); }
