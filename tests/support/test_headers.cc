// A program that does nothing: its precompiled headers are those of all tests.
int main() { return 0; }
