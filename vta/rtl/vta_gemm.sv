// The product of an element of inp and one of wgt: for each output, the sum over the inputs. It is
// there in the cycle after `valid`.
module vta_gemm (
    input logic clk,
    input logic valid,
    input logic [8*vta_isa::INP_BYTES-1:0] inp,
    input logic [8*vta_isa::WGT_BYTES-1:0] wgt,
    output logic [vta_rtl::SUM_BITS*vta_isa::BLOCK-1:0] sums
);
  localparam int unsigned BLOCK = vta_isa::BLOCK;
  localparam int unsigned SUM_BITS = vta_rtl::SUM_BITS;

  function automatic logic signed [SUM_BITS-1:0] dot(input logic [8*BLOCK-1:0] a,
                                                     input logic [8*BLOCK-1:0] b);
    dot = '0;
    for (int unsigned i = 0; i < BLOCK; i++)
      dot += SUM_BITS'($signed(a[8*i+:8])) * SUM_BITS'($signed(b[8*i+:8]));
  endfunction

  for (genvar o = 0; o < BLOCK; o++) begin : g_output
    always_ff @(posedge clk) begin
      if (valid) sums[SUM_BITS*o+:SUM_BITS] <= dot(inp, wgt[8*BLOCK*o+:8*BLOCK]);
    end
  end
endmodule
