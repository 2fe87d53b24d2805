class Liqoctl < Formula
  desc "Installs Liqo and joins Kubernetes clusters as peers"
  homepage "https://example.com/v0.2.0-rc.1"
  version "0.2.0-rc.1"
  license "Apache-2.0"

  if OS.mac? && Hardware::CPU.intel?
    url "https://example.com/v0.2.0-rc.1/liqoctl-darwin-amd64.tar.gz"
    sha256 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
  end

  if OS.mac? && Hardware::CPU.arm?
    url "https://example.com/v0.2.0-rc.1/liqoctl-darwin-arm64.tar.gz"
    sha256 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
  end

  if OS.linux? && Hardware::CPU.intel?
    url "https://example.com/v0.2.0-rc.1/liqoctl-linux-amd64.tar.gz"
    sha256 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
  end

  if OS.linux? && Hardware::CPU.arm?
    url "https://example.com/v0.2.0-rc.1/liqoctl-linux-arm64.tar.gz"
    sha256 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
  end

  def install
    bin.install "liqoctl"
    bash_completion.install "completions/liqoctl.bash" => "liqoctl"
    zsh_completion.install "completions/_liqoctl"
    fish_completion.install "completions/liqoctl.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/liqoctl version --client")
  end
end
