/* Bind mounts made inside: of directories and files, read-only, of a file system in memory, with files open through them. */
#include "victim.h"
#include <sys/mount.h>

static void put(const char *path, const char *text) {
    int fd = (int)must(open(path, O_RDWR | O_CREAT | O_TRUNC, 0640));
    must(write(fd, text, strlen(text)));
    close(fd);
}

static void expect_text(const char *path, const char *want) {
    char text[64] = "";
    int fd = (int)must(open(path, O_RDONLY));
    must(read(fd, text, sizeof text - 1));
    expect(!strcmp(text, want), "%s holds %s, not %s", path, text, want);
    close(fd);
}

int main(void) {
    for (char name[] = "a"; *name <= 'e'; ++*name)
        must(mkdir(name, 0755));
    must(mkdir("a/deep", 0755));
    put("a/deep/file", "one");
    put("single", "hidden");
    must(mount("a/deep", "b", NULL, MS_BIND, NULL));
    must(mount("a", "c", NULL, MS_BIND, NULL));
    must(mount(NULL, "c", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOEXEC, NULL));
    must(mount("a/deep/file", "single", NULL, MS_BIND, NULL));
    must(mount("memory", "d", "tmpfs", 0, NULL));
    must(mkdir("d/in", 0755));
    put("d/in/file", "two");
    must(mount("d/in", "e", NULL, MS_BIND, NULL));
    int through = (int)must(open("b/file", O_RDWR | O_APPEND)), memory = (int)must(open("e/file", O_RDWR | O_APPEND));
    ready();
    go();
    must(write(through, "!", 1));
    must(write(memory, "?", 1));
    expect_text("a/deep/file", "one!");
    expect_text("b/file", "one!");
    expect_text("c/deep/file", "one!");
    expect_text("single", "one!");
    expect_text("d/in/file", "two?");
    expect_text("e/file", "two?");
    expect(open("c/new", O_CREAT | O_WRONLY, 0600) < 0 && errno == EROFS, "what was bound read-only can be written");
    must(umount("single"));
    expect_text("single", "hidden");
    put("b/new", "x");
    expect_text("a/deep/new", "x");
    ok();
}
