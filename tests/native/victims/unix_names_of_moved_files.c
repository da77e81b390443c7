/* Sockets whose files were renamed, deleted, replaced or bound from elsewhere: each file leads where it led, names are as before. */
#include "letters.h"

static const char *name_at(int fd, bool peer) {
    static struct sockaddr_un name;
    socklen_t length = sizeof name;
    memset(&name, 0, sizeof name);
    must(peer ? getpeername(fd, (struct sockaddr *)&name, &length) : getsockname(fd, (struct sockaddr *)&name, &length));
    return name.sun_path;
}

static void serve(int listener, const char *path, const char *name) {
    int client = dialled(SOCK_STREAM, path), end = (int)must(accept(listener, NULL, NULL));
    must(write(client, "hello", 5));
    expect_text(end, "hello");
    expect(!strcmp(name_at(client, true), name), "who dials %s speaks to %s, not %s", path, name_at(client, true), name);
    close(client);
    close(end);
}

int main(void) {
    must(mkdir("/tmp/victim-deep", 0750));
    int renamed = bound(SOCK_STREAM, "/tmp/victim-name"), gone = bound(SOCK_STREAM, "/tmp/victim-gone"), relative, new, far;
    must(listen(renamed, 3));
    int to_renamed = dialled(SOCK_STREAM, "/tmp/victim-name"), from_renamed = (int)must(accept(renamed, NULL, NULL));
    must(rename("/tmp/victim-name", "/tmp/victim-deep/other"));
    must(chmod("/tmp/victim-deep/other", 0640));
    must(listen(gone, 3));
    int to_gone = dialled(SOCK_STREAM, "/tmp/victim-gone"), from_gone = (int)must(accept(gone, NULL, NULL));
    must(unlink("/tmp/victim-gone"));
    new = bound(SOCK_STREAM, "/tmp/victim-gone"); /* another one of that name */
    must(listen(new, 3));
    must(chdir("/tmp/victim-deep"));
    relative = bound(SOCK_STREAM, "here");
    must(listen(relative, 3));
    int to_relative = dialled(SOCK_STREAM, "here");
    int from_relative = (int)must(accept(relative, NULL, NULL));
    must(chdir("/"));
    /* The way to bind to a path that is too long for a name. */
    int directory = (int)must(open("/tmp/victim-deep", O_PATH | O_DIRECTORY));
    char through[64];
    snprintf(through, sizeof through, "/proc/self/fd/%d/far", directory);
    far = bound(SOCK_STREAM, through);
    must(listen(far, 3));
    char full[109];
    memset(full, 'f', 108);
    memcpy(full, "/tmp/victim-", 12);
    full[108] = '\0';
    int long_one = (int)must(socket(AF_UNIX, SOCK_STREAM, 0));
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    memcpy(name.sun_path, full, 108); /* without a NUL at its end */
    must(bind(long_one, (struct sockaddr *)&name, sizeof name));
    must(listen(long_one, 3));
    int idle = bound(SOCK_STREAM, "/tmp/victim-idle");
    ready();
    go();
    serve(renamed, "/tmp/victim-deep/other", "/tmp/victim-name");
    serve(new, "/tmp/victim-gone", "/tmp/victim-gone");
    serve(relative, "/tmp/victim-deep/here", "here");
    serve(far, "/tmp/victim-deep/far", through);
    expect(access("/tmp/victim-name", F_OK) == -1, "the old name is there again");
    struct stat info;
    must(stat("/tmp/victim-deep/other", &info));
    expect((info.st_mode & 0777) == 0640 && S_ISSOCK(info.st_mode), "mode %o", info.st_mode);
    expect(!strcmp(name_at(to_renamed, true), "/tmp/victim-name") && !strcmp(name_at(from_renamed, false), "/tmp/victim-name"), "renamed");
    expect(!strcmp(name_at(to_gone, true), "/tmp/victim-gone") && !strcmp(name_at(from_gone, false), "/tmp/victim-gone"), "gone");
    expect(!strcmp(name_at(to_relative, true), "here") && !strcmp(name_at(from_relative, false), "here"), "relative");
    expect(!strcmp(name_at(gone, false), "/tmp/victim-gone"), "the deleted one is called %s", name_at(gone, false));
    expect(!memcmp(name_at(long_one, false), full, 108), "the full one is called %.108s", name_at(long_one, false));
    must(write(to_gone, "still", 5));
    expect_text(from_gone, "still");
    int client = (int)must(socket(AF_UNIX, SOCK_STREAM, 0));
    must(connect(client, (struct sockaddr *)&name, sizeof name));
    must(accept(long_one, NULL, NULL));
    expect(dial((int)must(socket(AF_UNIX, SOCK_STREAM, 0)), "/tmp/victim-idle") == -1 && errno == ECONNREFUSED, "an idle socket answers");
    must(listen(idle, 3));
    serve(idle, "/tmp/victim-idle", "/tmp/victim-idle");
    must(chmod("/tmp", 01777));
    for (int i = 0; i < 2; i++) { /* nothing of ours lies about */
        char command[128];
        snprintf(command, sizeof command, "! ls -a %s | grep -q bunshin", i ? "/tmp" : "/tmp/victim-deep");
        expect(system(command) == 0, "%s", command);
    }
    ok();
}
