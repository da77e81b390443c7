/* Everything that can lie below /dev/shm: directories, hard and symbolic links, FIFOs, sockets; modes, times, attributes. */
#include "victim.h"
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/xattr.h>

#define ROOT "/dev/shm/victim-tree"

static void put(const char *path, const char *text, int mode) {
    int fd = (int)must(open(path, O_WRONLY | O_CREAT | O_EXCL, 0600));
    must(write(fd, text, strlen(text)));
    must(fchmod(fd, (mode_t)mode));
    close(fd);
}

static void expect_text(const char *path, const char *text) {
    char read_text[64] = "";
    int fd = (int)must(open(path, O_RDONLY));
    must(read(fd, read_text, sizeof read_text - 1));
    close(fd);
    expect(!strcmp(read_text, text), "%s holds %s", path, read_text);
}

static struct stat stat_of(const char *path) {
    struct stat info;
    must(lstat(path, &info));
    return info;
}

int main(void) {
    struct timespec times[2] = {{1000000, 1}, {2000000, 2}};
    char text[64];
    umask(0);
    must(mkdir(ROOT, 0700));
    must(mkdir(ROOT "/inner", 0751));
    must(mkdir(ROOT "/inner/empty", 01777));
    put(ROOT "/inner/plain", "plain", 0640);
    put(ROOT "/twice", "of two names", 0604);
    must(link(ROOT "/twice", ROOT "/inner/other"));
    put(ROOT "/closed", "closed", 0);
    must(symlink("inner/plain", ROOT "/way"));
    must(symlink("/nowhere", ROOT "/dangling"));
    must(mkfifo(ROOT "/fifo", 0620));
    bool attributes = setxattr(ROOT "/inner/plain", "user.victim", "value", 5, 0) == 0;
    int listener = (int)must(socket(AF_UNIX, SOCK_STREAM, 0)), left = (int)must(socket(AF_UNIX, SOCK_STREAM, 0));
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = ROOT "/socket"};
    must(bind(listener, (struct sockaddr *)&address, sizeof address));
    must(listen(listener, 5));
    strcpy(address.sun_path, ROOT "/nobody");
    must(bind(left, (struct sockaddr *)&address, sizeof address));
    close(left);
    int two = (int)must(open(ROOT "/inner/other", O_RDWR)), gone = (int)must(open(ROOT "/gone", O_RDWR | O_CREAT, 0600));
    int nameless = (int)must(open("/dev/shm", O_RDWR | O_TMPFILE, 0600)), directory = (int)must(open(ROOT "/inner", O_RDONLY | O_DIRECTORY));
    must(write(gone, "gone", 4));
    must(write(nameless, "nameless", 8));
    must(unlink(ROOT "/gone"));
    must(chdir(ROOT "/inner/empty"));
    must(utimensat(AT_FDCWD, ROOT "/inner/plain", times, 0));
    must(utimensat(AT_FDCWD, ROOT "/way", times, AT_SYMLINK_NOFOLLOW));
    must(utimensat(AT_FDCWD, ROOT "/inner", times, 0));
    must(utimensat(AT_FDCWD, ROOT, times, 0));
    ready();
    go();
    static const char *const timed[] = {ROOT, ROOT "/inner", ROOT "/inner/plain", ROOT "/way"};
    for (int i = 0; i < 4; i++)
        expect(stat_of(timed[i]).st_mtim.tv_sec == 2000000 && stat_of(timed[i]).st_mtim.tv_nsec == 2, "the time of %s", timed[i]);
    expect((stat_of(ROOT "/inner").st_mode & 07777) == 0751 && (stat_of(ROOT "/inner/empty").st_mode & 07777) == 01777, "modes of directories");
    expect((stat_of(ROOT "/inner/plain").st_mode & 07777) == 0640 && (stat_of(ROOT "/closed").st_mode & 07777) == 0, "modes of files");
    expect(stat_of(ROOT "/fifo").st_mode == (S_IFIFO | 0620) && S_ISSOCK(stat_of(ROOT "/nobody").st_mode), "kinds");
    expect_text(ROOT "/way", "plain");
    expect(readlink(ROOT "/dangling", text, sizeof text) == 8 && !memcmp(text, "/nowhere", 8), "the dangling link");
    expect(!attributes || (getxattr(ROOT "/inner/plain", "user.victim", text, sizeof text) == 5 && !memcmp(text, "value", 5)), "attributes");
    expect(stat_of(ROOT "/twice").st_nlink == 2 && stat_of(ROOT "/twice").st_ino == stat_of(ROOT "/inner/other").st_ino, "hard links");
    must(pwrite(two, "by", 2, 3));
    expect_text(ROOT "/twice", "of byo names");
    must(chmod(ROOT "/closed", 0400));
    expect_text(ROOT "/closed", "closed");
    expect(access(ROOT "/gone", F_OK) == -1 && pread(gone, text, 10, 0) == 4 && !memcmp(text, "gone", 4), "the deleted one");
    snprintf(text, sizeof text, "/proc/self/fd/%d", nameless);
    must(linkat(AT_FDCWD, text, AT_FDCWD, ROOT "/named", AT_SYMLINK_FOLLOW));
    expect_text(ROOT "/named", "nameless");
    expect(faccessat(directory, "plain", R_OK, 0) == 0, "the open directory");
    expect(access("../plain", F_OK) == 0 && access("../../twice", F_OK) == 0, "the working directory");
    strcpy(address.sun_path, ROOT "/socket");
    int client = (int)must(socket(AF_UNIX, SOCK_STREAM, 0));
    must(connect(client, (struct sockaddr *)&address, sizeof address));
    must(accept(listener, NULL, NULL));
    strcpy(address.sun_path, ROOT "/nobody");
    expect(connect((int)must(socket(AF_UNIX, SOCK_STREAM, 0)), (struct sockaddr *)&address, sizeof address) == -1 && errno == ECONNREFUSED, "nobody");
    must(rmdir(ROOT "/inner/empty"));
    ok();
}
