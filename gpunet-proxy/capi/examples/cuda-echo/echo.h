/* What the echo kernels and their host program share. */
#ifndef ECHO_H
#define ECHO_H

/* Where the server listens, once it does. The host writes zeros before the launch, and may read it while the kernel runs
 * if it is pinned host memory. */
struct echo_listener {
    int handle;          /* for the other blocks; negative: why it does not listen (an errno) */
    unsigned short port; /* in host byte order */
};

/* What one block did. */
struct echo_result {
    unsigned long long connections;
    unsigned long long bytes; /* echoed by the server; come back unchanged to the client */
    int error;                /* the first errno, positive; 0: none */
};

#endif
