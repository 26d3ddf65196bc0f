// The product of an element of inp and one of wgt: for each output, the sum over the inputs. It is
// there in the cycle after `valid`.
module vta_gemm (
    input logic clk,
    input logic valid,
    input logic [8*vta_isa::INP_BYTES-1:0] inp,
    input logic [8*vta_isa::WGT_BYTES-1:0] wgt,
    output logic [8*vta_isa::ACC_BYTES-1:0] sums
);
  localparam int unsigned BLOCK = vta_isa::BLOCK;
  localparam int unsigned SUM_BITS = 16 + $clog2(BLOCK);  // the others are copies of the sign

`ifdef SYNTHESIS
  // Signed words of 8 bits are what a multiplier of the part takes. The products are nets of their
  // own: in the process of the register Yosys would make a multiplexer for each of their bits.
  for (genvar o = 0; o < BLOCK; o++) begin : g_output
    logic signed [15:0] products[BLOCK];
    logic signed [SUM_BITS-1:0] sum;
    for (genvar i = 0; i < BLOCK; i++) begin : g_input
      assign products[i] = $signed(inp[8*i+:8]) * $signed(wgt[8*(BLOCK*o+i)+:8]);
    end
    always_comb begin
      sum = '0;
      for (int unsigned i = 0; i < BLOCK; i++) sum += SUM_BITS'(products[i]);
    end
    always_ff @(posedge clk) if (valid) sums[32*o+:32] <= 32'(sum);
  end
`else
  // A simulator is twice as fast with unsigned words, whose product has the same low 32 bits, and
  // with sums that it makes in cycles with `valid` only.
  function automatic logic [31:0] dot(input logic [8*BLOCK-1:0] a, input logic [8*BLOCK-1:0] b);
    dot = '0;
    for (int unsigned i = 0; i < BLOCK; i++)
      dot += 32'($signed(a[8*i+:8])) * 32'($signed(b[8*i+:8]));
  endfunction

  for (genvar o = 0; o < BLOCK; o++) begin : g_output
    always_ff @(posedge clk) begin
      if (valid) sums[32*o+:32] <= 32'($signed(SUM_BITS'(dot(inp, wgt[8*BLOCK*o+:8*BLOCK]))));
    end
  end
`endif
endmodule
