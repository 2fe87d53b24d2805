// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

// AuthParams holds what a client needs to connect to a provider's API server and authenticate.
// The provider writes it into a status; it is public except for AWSConfig.
type AuthParams struct {
	// CA is the bundle (PEM) that signed the API server's certificate; empty = the
	// certificate is trusted by the system's roots.
	// +optional
	CA []byte `json:"ca,omitempty"`
	// SignedCRT is the client certificate (PEM); empty = none, or AWSConfig is used.
	// +optional
	SignedCRT []byte `json:"signedCRT,omitempty"`
	// APIServer is the URL of the provider's API server.
	// +optional
	APIServer string `json:"apiServer,omitempty"`
	// ProxyURL is the HTTP CONNECT proxy on the way; empty = none.
	// +optional
	ProxyURL string `json:"proxyURL,omitempty"`
	// AWSConfig replaces the certificate on EKS; nil elsewhere.
	// +optional
	AWSConfig *AWSConfig `json:"awsConfig,omitempty"`
}

// AWSConfig is an IAM user that may enter the API server of an EKS cluster.
type AWSConfig struct {
	// AWSAccessKeyID is the ID of the user's access key.
	AWSAccessKeyID string `json:"awsAccessKeyID"`
	// AWSSecretAccessKey is the secret of the user's access key.
	AWSSecretAccessKey string `json:"awsSecretAccessKey"`
	// AWSRegion is the region of the cluster.
	AWSRegion string `json:"awsRegion"`
	// AWSClusterName is the name of the cluster in EKS.
	AWSClusterName string `json:"awsClusterName"`
	// AWSUserARN is the ARN of the IAM user.
	AWSUserARN string `json:"awsUserArn"`
}
