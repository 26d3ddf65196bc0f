// A queue of tokens between two modules. A token can be taken in the cycle after it was given. A full
// queue has room in a cycle in which a token is taken.
module vta_tokens (
    input  logic clk,
    input  logic reset,
    input  logic give,
    input  logic take,
    output logic available,
    output logic room
);
  localparam int unsigned BITS = $clog2(vta_rtl::TOKEN_DEPTH + 1);
  logic [BITS-1:0] count;

  assign available = count != 0;
  assign room = count != BITS'(vta_rtl::TOKEN_DEPTH) || take;

  always_ff @(posedge clk) begin
    if (reset) count <= '0;
    else count <= count + BITS'(give) - BITS'(take);
  end
endmodule
