/* File systems in memory that were mounted inside: options, content of every kind, open and deleted files, one on another. */
#include "victim.h"
#include <sys/mount.h>
#include <sys/statvfs.h>

static void expect_text(const char *path, const char *want) {
    char text[64] = "";
    int fd = (int)must(open(path, O_RDONLY));
    must(read(fd, text, sizeof text - 1));
    expect(!strcmp(text, want), "%s holds %s, not %s", path, text, want);
    close(fd);
}

static int put(const char *path, const char *text) {
    int fd = (int)must(open(path, O_RDWR | O_CREAT | O_TRUNC, 0640));
    must(write(fd, text, strlen(text)));
    return fd;
}

int main(void) {
    struct stat before, now;
    struct statvfs room;
    must(mkdir("m", 0755));
    must(mount("mine", "m", "tmpfs", MS_NOSUID | MS_NOEXEC, "size=3m,nr_inodes=77,mode=751"));
    must(mkdir("m/below", 0700));
    must(mount("deeper", "m/below", "tmpfs", 0, "mode=700"));
    close(put("m/below/file", "deep"));
    close(put("m/file", "text"));
    must(link("m/file", "m/other"));
    must(symlink("file", "m/link"));
    must(mkfifo("m/fifo", 0600));
    int open_one = put("m/open", "abc"), gone = put("m/gone", "no name");
    must(unlink("m/gone"));
    must(mkdir("r", 0755));
    must(mount("kept", "r", "tmpfs", 0, NULL));
    close(put("r/file", "to be read"));
    must(mount(NULL, "r", NULL, MS_REMOUNT | MS_RDONLY, NULL));
    must(chdir("m/below"));
    must(stat("../file", &before));
    ready();
    must(chdir("../.."));
    go();
    must(chdir("m/below"));
    expect_text("file", "deep");
    must(chdir("../.."));
    expect_text("m/link", "text");
    expect_text("r/file", "to be read");
    expect(open("r/new", O_CREAT | O_WRONLY, 0600) < 0 && errno == EROFS, "it can be written");
    must(stat("m/other", &now));
    expect(now.st_nlink == 2 && now.st_mode == before.st_mode && now.st_size == 4, "links %lu, mode %o", (unsigned long)now.st_nlink, now.st_mode);
    must(statvfs("m", &room));
    expect(room.f_blocks * room.f_frsize == 3 << 20 && room.f_files == 77, "room for %lu bytes, %lu files", room.f_blocks * room.f_frsize, room.f_files);
    expect(room.f_flag & ST_NOEXEC && room.f_flag & ST_NOSUID, "flags %lx", room.f_flag);
    must(stat("m", &now));
    expect((now.st_mode & 07777) == 0751, "mode %o", now.st_mode);
    must(write(open_one, "def", 3));
    expect_text("m/open", "abcdef");
    char text[16] = "";
    expect(pread(gone, text, 15, 0) == 7 && !strcmp(text, "no name"), "the deleted one holds %s", text);
    must(umount("m/below"));
    expect(access("m/below/file", F_OK) < 0, "it is still there when unmounted");
    must(umount("r"));
    ok();
}
