/* Descriptors that only show a place: of files, links, FIFOs, sockets, devices and terminals, some of them gone. */
#include "victim.h"
#include <pty.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { FILE_, LINK, FIFO, SOCKET, DIRECTORY, GONE_FILE, GONE_LINK, GONE_FIFO, NULL_DEVICE, TERMINAL, KINDS };

static void bind_at(const char *path) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "%s", path);
    must(bind((int)must(socket(AF_UNIX, SOCK_STREAM, 0)), (struct sockaddr *)&name, sizeof name));
}

int main(void) {
    int fd[KINDS], master, slave;
    char name[64];
    static const mode_t types[KINDS] = {S_IFREG, S_IFLNK, S_IFIFO, S_IFSOCK, S_IFDIR, S_IFREG, S_IFLNK, S_IFIFO, S_IFCHR, S_IFCHR};
    must(close((int)must(open(victim_path("file"), O_CREAT | O_WRONLY, 0600))));
    must(close((int)must(open(victim_path("gone file"), O_CREAT | O_WRONLY, 0600))));
    must(symlink("somewhere", victim_path("link")));
    must(symlink("nowhere", victim_path("gone link")));
    must(mkfifo(victim_path("fifo"), 0600));
    must(mkfifo(victim_path("gone fifo"), 0600));
    must(mkdir(victim_path("directory"), 0700));
    bind_at(victim_path("socket"));
    must(openpty(&master, &slave, NULL, NULL, NULL));
    must(ttyname_r(slave, name, sizeof name) ? -1 : 0);
    const char *const names[] = {"file", "link", "fifo", "socket", "directory", "gone file", "gone link", "gone fifo"};
    for (int i = 0; i < 8; i++)
        fd[i] = (int)must(open(victim_path(names[i]), O_PATH | O_NOFOLLOW));
    fd[NULL_DEVICE] = (int)must(open("/dev/null", O_PATH));
    fd[TERMINAL] = (int)must(open(name, O_PATH));
    for (int i = GONE_FILE; i <= GONE_FIFO; i++)
        must(unlink(victim_path(names[i])));
    ready();
    go();
    struct stat info, named;
    for (int i = 0; i < KINDS; i++) {
        must(fstat(fd[i], &info));
        expect((info.st_mode & S_IFMT) == types[i], "%d is of type %o", i, info.st_mode);
        expect(fcntl(fd[i], F_GETFL) & O_PATH, "%d is open", i);
        bool gone = i >= GONE_FILE && i <= GONE_FIFO;
        expect((info.st_nlink == 0) == gone, "%d has %d names", i, (int)info.st_nlink);
        if (gone)
            continue;
        must(lstat(i == NULL_DEVICE ? "/dev/null" : i == TERMINAL ? name : victim_path(names[i]), &named));
        expect(info.st_ino == named.st_ino && info.st_dev == named.st_dev, "%d is another", i);
    }
    char text[64] = "";
    must(readlinkat(fd[LINK], "", text, sizeof text - 1));
    expect(!strcmp(text, "somewhere"), "the link leads to %s", text);
    memset(text, 0, sizeof text);
    must(readlinkat(fd[GONE_LINK], "", text, sizeof text - 1));
    expect(!strcmp(text, "nowhere"), "the other leads to %s", text);
    int again;
    snprintf(text, sizeof text, "/proc/self/fd/%d", fd[TERMINAL]);
    again = (int)must(open(text, O_RDWR | O_NOCTTY));
    must(write(master, "line\n", 5));
    memset(text, 0, sizeof text);
    must(read(again, text, sizeof text));
    expect(!strcmp(text, "line\n"), "the terminal says %s", text);
    snprintf(text, sizeof text, "/proc/self/fd/%d", fd[GONE_FILE]);
    must(write((int)must(open(text, O_WRONLY)), "x", 1));
    must(fstat(fd[GONE_FILE], &info));
    expect(info.st_size == 1, "what was written went elsewhere");
    ok();
}
