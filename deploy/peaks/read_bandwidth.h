// How many bytes per second this machine's cores read, from the level of the hierarchy that holds
// `bytes`. Takes some milliseconds.
#pragma once

#include <cstddef>

namespace tilewright::peaks {

// GB/s of `threads` threads together, each reading its share of a buffer again and again, in one
// stream or several side by side; the best of several rounds.
double ReadBandwidth(size_t bytes, int threads);

}  // namespace tilewright::peaks
