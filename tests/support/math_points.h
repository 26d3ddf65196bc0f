// Arguments on which functions of one float are checked, and how far a result is from the exact
// one. Pure.
#pragma once

#include <vector>

namespace tilewright::tests {

// Returns the distance in units of the last place of the exact value, rounded to a float; infinity
// for a number in place of none, or the other way round.
double Ulps(float actual, double exact);

// Special values, a sample of all bit patterns, and many numbers between -6 and 6; a multiple of 16
// of them.
std::vector<float> MathPoints();

}  // namespace tilewright::tests
