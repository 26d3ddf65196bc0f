// A queue in a block RAM. A word is seen in the cycle after it was pushed. A full queue takes a word
// in a cycle in which another leaves it.
module vta_fifo #(
    parameter int unsigned WIDTH = 8,
    parameter int unsigned DEPTH = 16
) (
    input logic clk,
    input logic reset,
    input logic push,
    input logic [WIDTH-1:0] word,
    output logic full,
    input logic pop,
    output logic valid,
    output logic [WIDTH-1:0] head
);
  localparam int unsigned INDEX_BITS = $clog2(DEPTH);
  logic [INDEX_BITS-1:0] first, last;
  logic [INDEX_BITS:0] count;

  assign valid = count != 0;
  assign full  = count == (INDEX_BITS + 1)'(DEPTH) && !pop;

  // What will be the head in the next cycle is read now.
  logic [INDEX_BITS-1:0] next_first;
  assign next_first = first + INDEX_BITS'(pop);

  vta_memory #(
      .ELEMENTS (DEPTH),
      .BANK_BITS(WIDTH),
      .FORWARD  (1'b1)
  ) memory (
      .clk,
      .write(push),
      .write_index(last),
      .write_data(word),
      .read(push || pop),
      .read_index(next_first),
      .read_data(head)
  );

  always_ff @(posedge clk) begin
    if (reset) begin
      first <= '0;
      last  <= '0;
      count <= '0;
    end else begin
      first <= next_first;
      if (push) last <= last + 1'b1;
      count <= count + (INDEX_BITS + 1)'(push) - (INDEX_BITS + 1)'(pop);
    end
  end
endmodule
