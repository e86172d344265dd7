// What the kernels and the host program of the example share: the functions' requests and answers.
#ifndef CALLS_H
#define CALLS_H

// A row of a table that the host has: answer of "row", whose request is a number. It is longer than one look of a caller.
struct row {
    unsigned int number;
    unsigned int reserved;
    double values[20];
};

// What a kernel leaves: how many results were wrong.
struct outcome {
    unsigned int wrong, first_wrong; // the line of the first one
};

#endif
