/* A queue of datagrams from several senders: named, abstract, nameless, ended and renamed ones, each with its address. */
#include "letters.h"

static const struct {
    const char *name;
    bool ends;
} senders[] = {{"/tmp/victim-from", false}, {"@victim from", false}, {"", false}, {"/tmp/victim-dead", true}, {"@victim dead", true}, {"", true}};
#define SENDERS (sizeof senders / sizeof *senders)

int main(void) {
    int box = bound(SOCK_DGRAM, "/tmp/victim-box"), fds[SENDERS], pipes[2], peer = bound(SOCK_DGRAM, "/tmp/victim-peer");
    struct sockaddr_un to;
    socklen_t length = name_of(&to, "/tmp/victim-box");
    must(pipe(pipes));
    for (size_t i = 0; i < SENDERS; i++)
        fds[i] = *senders[i].name ? bound(SOCK_DGRAM, senders[i].name) : (int)must(socket(AF_UNIX, SOCK_DGRAM, 0));
    for (int round = 0; round < 1; round++)
        for (size_t i = 0; i < SENDERS; i++) {
            char text[32];
            snprintf(text, sizeof text, "%zu of %d", i, round);
            must(post_to(fds[i], text, strlen(text), &pipes[1], i == 3, NULL, 0, &to, length));
        }
    must(sendto(fds[0], "", 0, 0, (struct sockaddr *)&to, length));
    must(dial(peer, "/tmp/victim-box"));
    must(write(peer, "connected", 9));
    must(dial(box, "/tmp/victim-peer")); /* from now on it takes from its peer alone, but keeps what it has */
    for (size_t i = 0; i < SENDERS; i++)
        if (senders[i].ends)
            close(fds[i]);
    must(unlink("/tmp/victim-dead"));
    must(rename("/tmp/victim-from", "/tmp/victim-moved"));
    close(pipes[1]);
    ready();
    go();
    for (size_t i = 0; i < SENDERS; i++) {
        char text[32];
        snprintf(text, sizeof text, "%zu of %d", i, 0);
        struct letter letter = fetch(box);
        expect(!strcmp(letter.text, text), "letter %zu says %s", i, letter.text);
        struct sockaddr_un from;
        socklen_t size = *senders[i].name ? name_of(&from, senders[i].name) : 0;
        expect(letter.address_size == size && !memcmp(&letter.address, &from, size), "letter %zu is from %.20s (%u bytes)", i,
               letter.address.sun_path + (*senders[i].name == '@'), letter.address_size);
        expect(letter.count == (i == 3), "letter %zu came with %d descriptors", i, letter.count);
        for (int j = 0; j < letter.count; j++)
            close(letter.fds[j]);
    }
    char text[8];
    expect(read(pipes[0], text, 1) == 0, "the pipe still has a writer");
    struct letter letter = fetch(box);
    expect(letter.size == 0 && !strcmp(letter.address.sun_path, "/tmp/victim-from"), "the empty letter has %zd bytes", letter.size);
    letter = fetch(box);
    expect(letter.size == 9 && !strcmp(letter.address.sun_path, "/tmp/victim-peer"), "the last is %.9s", letter.text);
    expect(fetch(box).size == -1 && errno == EAGAIN, "there is one more");
    expect(sendto(fds[1], "x", 1, 0, (struct sockaddr *)&to, length) == -1 && errno == EPERM, "it takes from others");
    must(write(peer, "on", 2));
    expect_text(box, "on");
    must(write(box, "answer", 6));
    expect_text(peer, "answer");
    expect(access("/tmp/victim-dead", F_OK) == -1 && access("/tmp/victim-from", F_OK) == -1, "a name is there again");
    bound(SOCK_DGRAM, "@victim dead"); /* the names of the ended are free */
    must(unlink("/tmp/victim-moved"));
    ok();
}
